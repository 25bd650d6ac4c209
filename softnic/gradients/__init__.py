"""Gradient methods: what ranks send of their gradients, and what they keep for later.

    method = softnic.gradients.get("dgc:0.001")
    method.average(MPI.COMM_WORLD, {"weight": gradient})     # the ranks' mean, as the method makes it, in place

Reading order: method, parameters, flat, exact; bounds, compressed, feedback; planes, indices, sparse, sparse_gd, dgc,
scalecom; lgc; information. The other leg, of weights: awp, adt, worker_aggregator.
"""

from __future__ import annotations

from importlib import import_module

from softnic.gradients.method import Floats, Gradients, Method, MethodError, Stats
from softnic.gradients.parameters import parse

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
    if not isinstance(text, str):
        raise MethodError(f"a gradient method is named by a str, as in 'dgc:0.001', not by {text!r}")
    name, _, rest = text.partition(":")
    if name not in _METHODS:
        raise MethodError(f"there is no gradient method {name!r}; there are {', '.join(_METHODS)}")
    module, kind = _METHODS[name]
    made = getattr(import_module(f"{__name__}.{module}"), kind)
    arguments = parse(name, made, rest)
    try:
        method: Method = made(**arguments)
    except ValueError as error:
        raise MethodError(f"{text!r} is no gradient method: {error}") from error
    return method
