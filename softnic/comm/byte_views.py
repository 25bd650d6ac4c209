"""The bytes of the most usual buffers of messages, without the work that unusual ones take (message_spec.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.comm.datatype_definition import DatatypeHandle, TypeDefinition

_array_names: dict[np.dtype[Any], str] = {np.dtype(each): np.dtype(each).name for each in (*"?bhilqBHILQefdgFDG",)}
"""By the element type of an array, its name."""


def bytes_of(spec: Any) -> tuple[memoryview, str] | None:
    """Return the bytes of a message and the name of their element type, as message_spec.message finds them.

    Only for arrays in C order, and for [data, count, datatype] with a predefined datatype, where all of it is valid;
    None: message_spec.py is to look at it.
    """
    kind = type(spec)
    try:
        if kind is np.ndarray:
            name = _array_names[spec.dtype]
            return memoryview(spec).cast("B"), name
        if (kind is list or kind is tuple) and len(spec) == 3:
            data, count, datatype = spec
            if type(count) is int and count >= 0 and isinstance(datatype, DatatypeHandle):
                return _items(data, count, datatype._target)
    except (TypeError, ValueError, KeyError, BufferError):
        pass
    return None


def _items(data: Any, count: int, definition: TypeDefinition | None) -> tuple[memoryview, str] | None:
    if definition is None:
        return None
    size, name = definition.element
    view = memoryview(data)
    size *= count
    if not name or size > view.nbytes:
        return None
    return (view if view.format == "B" and view.ndim == 1 else view.cast("B"))[:size], name
