"""Memory that objects export by DLPack and by CUDA's array interface, as flat arrays over it.

Both describe the memory of GPUs as well. It is used if the processor can access it, as pinned and managed memory.
"""

from __future__ import annotations

import ctypes
import operator
import os
import warnings
from typing import Any

import numpy as np

from softnic.collectives.elements import BFLOAT16, Array
from softnic.comm.error_classes import ERR_BUFFER
from softnic.comm.errors import Refused, application_code

_HOST_DEVICES = (1, 3, 11, 13)
"""DLPack's numbers of memory that the processor can access: its own, pinned and managed memory."""
_CPU = 1
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
"""numpy's letters for DLPack's kinds of elements."""
_FLOAT, _BFLOAT = 2, 4
_READ_ONLY = 1
_libc = ctypes.CDLL(None)


class NotABufferError(Refused, TypeError):
    """What is given as a buffer exports no memory."""

    def __init__(self, text: str) -> None:
        super().__init__(ERR_BUFFER, text)


class BufferAccessError(Refused, BufferError):
    """The memory of a buffer cannot be used so: it is read-only, of a GPU, or in another byte order."""

    def __init__(self, text: str) -> None:
        super().__init__(ERR_BUFFER, text)


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


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _VersionedTensor(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


def from_dlpack(data: Any, what: str) -> Array:
    """Return a flat array over the memory of an object that exports DLPack's tensors. Raises BufferAccessError."""
    with application_code():
        device, number = (operator.index(each) for each in data.__dlpack_device__())
        del number
        capsule = data.__dlpack__() if device == _CPU else data.__dlpack__(stream=-1)
    tensor, writable = _tensor_of(capsule, what)
    shape = _axes(tensor.shape, tensor.ndim, what)
    if min(shape, default=0) < 0:
        raise BufferAccessError(f"{what} has the shape {shape}")
    itemsize = tensor.bits * tensor.lanes // 8
    if tensor.strides:
        strides = [stride * itemsize for stride in _axes(tensor.strides, tensor.ndim, what)]
        _check_contiguous(shape, strides, itemsize, what)
    address = (tensor.data or 0) + tensor.byte_offset
    if tensor.device_type not in _HOST_DEVICES:
        _check_host(address, what)
    array = bytes_at(address, int(np.prod(shape, dtype=np.int64)) * itemsize, capsule)
    if (tensor.code, tensor.bits, tensor.lanes) == (_BFLOAT, 16, 1):
        array = array.view(BFLOAT16)
    elif (tensor.code, tensor.lanes) == (_FLOAT, 2):  # a pair of floats: DLPack has no longer complex numbers
        array = array.view(f"c{itemsize}")
    elif tensor.lanes == 1 and tensor.code in _KINDS:
        array = array.view(f"{_KINDS[tensor.code]}{itemsize}")
    array.flags.writeable = writable
    return array


def _tensor_of(capsule: Any, what: str) -> tuple[_Tensor, bool]:
    """Return the tensor in a capsule, and whether it may be written to. Raises BufferAccessError."""
    pointer, is_valid = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(pointer(capsule, b"dltensor")), True
    if not is_valid(capsule, b"dltensor_versioned"):
        raise BufferAccessError(f"{what} exports no tensor by DLPack, or one that is used already")
    versioned = _VersionedTensor.from_address(pointer(capsule, b"dltensor_versioned"))
    if versioned.major != 1:
        raise BufferAccessError(f"{what} exports a tensor of version {versioned.major} of DLPack; 1 is known")
    return versioned.tensor, not versioned.flags & _READ_ONLY


def _axes(numbers: Any, ndim: int, what: str) -> list[int]:
    """Return the shape or strides of a tensor. Raises BufferAccessError."""
    if ndim < 0 or (ndim and not numbers):
        raise BufferAccessError(f"{what} exports a tensor of {ndim} axes without their lengths")
    return [int(numbers[axis]) for axis in range(ndim)]


def from_cuda(interface: Any, data: Any, what: str) -> Array:
    """Return a flat array over the memory of an object that exports CUDA's array interface.

    Raises BufferAccessError; for an interface that is none TypeError, KeyError and ValueError.
    """
    address, readonly = interface["data"]
    typestr, shape = interface["typestr"], tuple(interface["shape"])
    if not isinstance(typestr, str):
        raise TypeError(f"{what} has the type string {typestr!r}")
    itemsize = int(typestr[2:])
    if interface.get("mask") is not None:
        raise BufferAccessError(f"{what} is a masked array")
    if min(shape, default=0) < 0 or typestr[0] not in "<>|=":
        raise BufferAccessError(f"{what} has the shape {shape} and the type string {typestr!r}")
    if (strides := interface.get("strides")) is not None:
        _check_contiguous(list(shape), list(strides), itemsize, what)
    if (fields := interface.get("descr")) is not None and [*fields] != [("", typestr)]:
        warnings.warn("the fields of structures of CUDA's array interface are ignored", RuntimeWarning, stacklevel=4)
    size = int(np.prod(shape, dtype=np.int64)) * itemsize
    if size:
        _check_host(address, what)
    array = bytes_at(address or 0, size, data)
    if typestr[1] in "biufc":
        array = array.view(typestr.replace("|", "="))
    array.flags.writeable = not readonly
    return array


def _check_contiguous(shape: list[int], strides: list[int], itemsize: int, what: str) -> None:
    """Raise BufferAccessError unless the elements lie side by side. Axes of one element may have any stride."""
    axes = [(length, stride) for length, stride in zip(shape, strides, strict=True) if length != 1]
    for order in (axes, axes[::-1]):
        expected, matches = itemsize, True
        for length, stride in order:
            matches = matches and stride == expected
            expected *= length
        if matches:
            return
    raise BufferAccessError(f"{what} is not contiguous: copy it first")


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
