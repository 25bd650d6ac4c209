"""MPI.buffer and addresses; memory by DLPack and by CUDA's array interface."""

from __future__ import annotations

from array import array as make_array
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.mpi.arguments import buffers


class Exported:
    """Memory of the processor by CUDA's array interface, as that of managed memory."""

    def __init__(self, array: Any, **fields: Any) -> None:
        place = array.__array_interface__
        self.__cuda_array_interface__ = {
            "data": place["data"],
            "typestr": place["typestr"],
            "shape": array.shape,
            **fields,
        }


class ByDlpack:
    """An array that exports nothing but DLPack's tensor."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


@pytest.mark.parametrize("export", [Exported, ByDlpack])
@pytest.mark.parametrize("code", ["f4", "i2", "c16", "u1"])
def test_the_memory_is_the_objects_own(export: Any, code: str) -> None:
    data = np.arange(6).astype(code).reshape(2, 3)
    flat = buffers.flat(export(data), writable=True)
    assert flat.dtype == data.dtype
    flat[:] = 1
    assert (data == 1).all()


def test_memory_of_gpus_and_other_interfaces_are_errors() -> None:
    data = np.zeros(3)
    for fields, error in (
        ({"data": (1 << 62, False)}, "memory of a GPU"),
        ({"mask": data}, "masked"),
        ({"strides": (16,)}, "not contiguous"),
        ({"data": (MPI.Get_address(data), True)}, "read-only"),
        ({"typestr": ">f8"}, "another byte order"),
    ):
        with pytest.raises(BufferError, match=error):
            buffers.flat(Exported(data, **fields), writable=True)


def test_a_buffer_is_a_sequence_of_bytes() -> None:
    data = make_array("B", [1, 2, 3])
    view = MPI.buffer.frombuffer(data)
    assert (view.nbytes, view.readonly, view.obj, view.address) == (3, False, data, data.buffer_info()[0])
    view[1:] = b"\7\x08"
    view[0] = 9
    assert data.tolist() == [9, 7, 8]
    assert view[1:].tobytes() == b"\7\x08"
    assert MPI.buffer.fromaddress(view.address, 2).tobytes() == b"\x09\7"
    for item, error in ((3, IndexError), (slice(0, 3, 2), IndexError), (None, TypeError)):
        with pytest.raises(error):
            view[item]
    with pytest.raises(ValueError, match="are assigned to"):
        view[0:1] = view[1:3]
    with pytest.raises(TypeError, match="read-only"):
        view.toreadonly()[0] = 1
    view.release()
    assert (len(view), view.address) == (0, 0)


def test_memory_of_messages() -> None:
    small, large = MPI.Alloc_mem(100), MPI.Alloc_mem(1 << 20)
    assert type(small) is type(large) is MPI.buffer
    cells: Any = large.cast("d", (2, 1 << 16))
    cells[1, 0] = 2.5
    assert np.frombuffer(large)[1 << 16] == 2.5
    MPI.Free_mem(large)
    assert large.nbytes == 0


def test_addresses() -> None:
    data = np.zeros(3)
    assert MPI.Get_address(data) == data.ctypes.data
    assert MPI.Get_address(MPI.BOTTOM) == 0
    assert MPI.Aint_diff(MPI.Aint_add(100, 8), 100) == 8
