"""The memory of objects: an array over what an object exports, by whatever protocol it exports it. Nothing is copied.

The protocols are Python's buffers, numpy's array interface, torch's tensors, DLPack, and CUDA's array interface for
memory that the processor can access as well.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from softnic.collectives.elements import BFLOAT16, Array
from softnic.comm.errors import application_code
from softnic.mpi.arguments.exported_memory import NotABufferError, from_cuda, from_dlpack


def array_of(data: Any, what: str) -> Array:
    """Return an array over an object's own memory.

    Raises
    ------
    TypeError
        If the object exports no memory.
    ValueError
        If it exports elements that numpy does not know, or copies only.
    """
    if isinstance(data, np.ndarray):
        return data if type(data) is np.ndarray else data.view(np.ndarray)  # a subclass may index and compare otherwise
    if data is None:
        raise NotABufferError(f"{what} is missing")
    try:
        view = memoryview(data)
    except (TypeError, ValueError, BufferError):
        return _foreign(data, what)
    try:
        return np.asarray(view)
    except (ValueError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{what} has the element format {view.format!r}, which numpy does not know") from error


def _foreign(data: Any, what: str) -> Array:
    """Return an array over the memory of an object without the buffer protocol."""
    detached = data.detach() if hasattr(data, "detach") else data
    if str(getattr(detached, "dtype", "")) == "torch.bfloat16":  # torch exports it as integers only
        integers = detached.view(sys.modules[type(detached.dtype).__module__].int16)
        return _foreign(integers, what).view(np.uint16).view(BFLOAT16)
    if hasattr(detached, "__array_interface__") or hasattr(detached, "__array__"):
        return _numpys(detached, data, what)
    if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
        return from_dlpack(data, what)
    with application_code():
        interface = getattr(data, "__cuda_array_interface__", None)
    if interface is not None:
        return from_cuda(interface, data, what)
    raise NotABufferError(f"{what} is a {type(data).__name__}: an array or another buffer is expected")


def _numpys(detached: Any, data: Any, what: str) -> Array:
    """Return the array that numpy makes of an object."""
    try:
        first, second = np.asarray(detached), np.asarray(detached)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what} is a {type(data).__name__} that numpy has no view of: {error}") from error
    if first.size and not np.shares_memory(first, second):
        raise ValueError(f"{what} is a {type(data).__name__} that gives numpy copies of its memory only")
    return first
