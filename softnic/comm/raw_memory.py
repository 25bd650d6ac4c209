"""The memory of objects: an array over what an object exports, by whatever protocol it exports it. Nothing is copied.

The protocols are Python's buffers, numpy's array interface, torch's tensors, DLPack, and CUDA's array interface for
memory that the processor can access as well.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.collectives.elements import BFLOAT16
from softnic.comm.constants import ERR_BUFFER
from softnic.comm.errors import Refused

Array = npt.NDArray[Any]
_libc = ctypes.CDLL(None)


class NotABufferError(Refused, TypeError):
    """What is given as a buffer exports no memory."""

    def __init__(self, text: str) -> None:
        super().__init__(ERR_BUFFER, text)


class BufferAccessError(Refused, BufferError):
    """The memory of a buffer cannot be used so: it is read-only, of a GPU, or in another byte order."""

    def __init__(self, text: str) -> None:
        super().__init__(ERR_BUFFER, text)


_HOST_DEVICES = (1, 3, 11, 13)
"""DLPack's numbers of memory that the processor can access: its own, pinned and managed memory."""


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
        return data
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


def bytes_at(address: int, size: int, owner: Any = None) -> Array:
    """Return an array over memory of this process, which keeps `owner` alive."""
    if size <= 0:
        return np.empty(0, np.uint8)
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return np.asarray(memoryview(memory).cast("B"))


def is_accessible(data: Any) -> bool:
    """Return whether an object says that the processor can access its memory."""
    try:
        memoryview(data)
    except (TypeError, ValueError, BufferError):
        if hasattr(data, "__dlpack_device__"):
            return int(data.__dlpack_device__()[0]) in _HOST_DEVICES
        return not hasattr(data, "__cuda_array_interface__")
    return True


def _foreign(data: Any, what: str) -> Array:
    """Return an array over the memory of an object without the buffer protocol."""
    detached = data.detach() if hasattr(data, "detach") else data
    if str(getattr(detached, "dtype", "")) == "torch.bfloat16":  # torch exports it as integers only
        integers = detached.view(sys.modules[type(detached.dtype).__module__].int16)
        return _foreign(integers, what).view(np.uint16).view(BFLOAT16)
    if hasattr(detached, "__array_interface__") or hasattr(detached, "__array__"):
        return _numpys(detached, data, what)
    if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
        return _from_dlpack(data, what)
    if hasattr(data, "__cuda_array_interface__"):
        return _from_cuda(data.__cuda_array_interface__, data, what)
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


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_VERSIONED_HEAD = 32
"""Bytes of DLManagedTensorVersioned in front of its tensor."""


def _from_dlpack(data: Any, what: str) -> Array:
    """Return an array over the memory of an object that exports DLPack's tensors."""
    device, _ = data.__dlpack_device__()
    capsule = data.__dlpack__(stream=-1) if int(device) not in (1,) else data.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    versioned = bool(valid(capsule, b"dltensor_versioned"))
    place = pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    tensor = _Tensor.from_address(place + (_VERSIONED_HEAD if versioned else 0))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    itemsize = tensor.bits * tensor.lanes // 8
    strides = tuple(tensor.strides[axis] * itemsize for axis in range(tensor.ndim)) if tensor.strides else None
    kind = "V" if tensor.lanes != 1 else _DLPACK_KINDS.get(tensor.code, "V")
    if (tensor.code, tensor.lanes) == (2, 2):  # a pair of floats: DLPack has no longer complex numbers
        kind = "c"
    dtype = BFLOAT16 if (tensor.code, tensor.bits) == (4, 16) else np.dtype(f"{kind}{itemsize}")
    address = (tensor.data or 0) + tensor.byte_offset
    if tensor.device_type not in _HOST_DEVICES:
        _check_host(address, what)
    return _strided(address, shape, strides, dtype, capsule)


def _from_cuda(interface: dict[str, Any], data: Any, what: str) -> Array:
    """Return an array over the memory of an object that exports CUDA's array interface."""
    address, readonly = interface["data"]
    _check_host(address, what)
    array = _strided(address, interface["shape"], interface.get("strides"), np.dtype(interface["typestr"]), data)
    array.flags.writeable = not readonly
    return array


def _strided(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype[Any], owner: Any
) -> Array:
    """Return an array over memory. Axes of one element may have any stride."""
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is not None:
        axes = [(length, stride) for length, stride in zip(shape, strides, strict=True) if length > 1]
        shape, strides = tuple(length for length, _ in axes), tuple(stride for _, stride in axes)
        reach = sum((length - 1) * abs(stride) for length, stride in axes) + dtype.itemsize
    else:
        reach = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.ndarray(shape, dtype, bytes_at(address, reach, owner), 0, strides)


def _check_host(address: int, what: str) -> None:
    """Raise BufferError unless the processor may access this address: memory of a GPU is not mapped for it.

    The kernel is asked to read a byte of it, which it refuses without harm.
    """
    reader, writer = os.pipe()
    try:
        readable = not address or _libc.write(writer, ctypes.c_void_p(address), ctypes.c_size_t(1)) == 1
    finally:
        os.close(reader)
        os.close(writer)
    if not readable:
        raise BufferAccessError(f"{what} is in the memory of a GPU: copy it to the host first")
