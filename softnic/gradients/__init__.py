"""Gradient methods: ranks exchange a compressed or sparse form of their gradients, and keep the rest for later steps.

    method = softnic.gradients.get("dgc:0.001")
    method.average(MPI.COMM_WORLD, {"weight": gradient})     # replaces the gradient by the mean over ranks

Reading order: method, parameters, flat, rounds, exact; bounds, compressed, feedback; byte_shuffle, indices, sparse,
sparse_gd, dgc, scalecom, sparseloco; lgc; information. For weights: awp, adt, worker_aggregator.
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
    "sparseloco": ("sparseloco", "SparseLoCo"),
    "lgc-ps": ("lgc.server", "LgcServer"),
    "lgc-ring": ("lgc.ring", "LgcRing"),
}
"""By name: the module, which is imported when the method is requested, and the class."""


def names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(_METHODS)


def get(text: str) -> Method:
    """Make a gradient method.

    Parameters
    ----------
    text : str
        As in ``dgc:0.001,warmup=200``: the name of a method, then the arguments of its class, by position or by name.

    Returns
    -------
    Method
        With state of its own: one is needed on each rank, for each model.

    Raises
    ------
    MethodError
        The method does not exist, or does not take these arguments.
    """
    if not isinstance(text, str):
        raise MethodError(f"a gradient method is given as a str, as in 'dgc:0.001', not by {text!r}")
    name, _, rest = text.partition(":")
    if name not in _METHODS:
        raise MethodError(f"there is no gradient method {name!r}; there are {', '.join(_METHODS)}")
    module, kind = _METHODS[name]
    made = getattr(import_module(f"{__name__}.{module}"), kind)
    arguments = parse(name, made, rest)
    try:
        method: Method = made(**arguments)
    except ValueError as error:
        raise MethodError(f"{text!r} is not a gradient method: {error}") from error
    return method
