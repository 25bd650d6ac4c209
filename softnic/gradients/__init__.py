"""Gradient methods: what ranks send of their gradients, and what they keep for later.

    method = softnic.gradients.get("dgc:0.001")
    method.average(MPI.COMM_WORLD, {"weight": gradient})     # the ranks' mean, as the method makes it, in place

Reading order: method, flat, exact; bounds, compressed, feedback; planes, indices, sparse, sparse_gd, dgc, scalecom;
lgc; information. The other leg, of weights: awp, adt, worker_aggregator.
"""

from __future__ import annotations

from importlib import import_module

from softnic.gradients.method import Floats, Gradients, Method, MethodError, Stats

__all__ = ["Floats", "Gradients", "Method", "MethodError", "Stats", "get", "names"]

_METHODS = {
    "exact": ("exact", "Exact"),
    "compressed": ("compressed", "Compressed"),
    "feedback": ("feedback", "Feedback"),
    "sparse-gd": ("sparse_gd", "SparseGD"),
    "dgc": ("dgc", "DGC"),
    "scalecom": ("scalecom", "ScaleCom"),
    "lgc-ps": ("lgc.server", "LgcServer"),
    "lgc-ring": ("lgc.ring", "LgcRing"),
}
"""By name: the module below this one, which is imported when the method is asked for, and the class."""


def names() -> tuple[str, ...]:
    """The methods that `get` knows."""
    return tuple(_METHODS)


def get(text: str) -> Method:
    """The method of a text like `dgc:0.001,warmup=200`: a name, what its class takes first, and its other parameters by
    name. Raises MethodError."""
    name, _, rest = text.partition(":")
    if name not in _METHODS:
        raise MethodError(f"there is no gradient method {name!r}; there are {', '.join(_METHODS)}")
    module, kind = _METHODS[name]
    made = getattr(import_module(f"{__name__}.{module}"), kind)
    first: list[float | str] = []
    others: dict[str, float | str] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if equals:
            others[key.strip()] = _value(value.strip())
        else:
            first.append(_value(part.strip()))
    try:
        method: Method = made(*first, **others)
    except (TypeError, ValueError) as error:
        raise MethodError(f"{text!r} is no gradient method: {error}") from error
    return method


def _value(text: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
