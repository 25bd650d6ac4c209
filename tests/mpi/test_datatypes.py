"""Datatypes: which bytes of a buffer travel, and what a type says of itself."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import MPI
from softnic.mpi.arguments import buffers
from softnic.mpi.communicator import Communicator
from tests.mpi.groups import FakeNics
from tests.mpi.ranks import run

SMALL = st.integers(0, 5)


def elements(datatype: MPI.Datatype, count: int = 1, size: int = 200) -> list[int]:
    """The elements of a buffer of 0, 1, 2 ... that a message of `count` items has."""
    found: list[int] = buffers.message([np.arange(size, dtype=np.intc), count, datatype]).array.tolist()
    return found


@given(SMALL, SMALL, st.integers(-5, 9), st.integers(0, 3))
def test_a_vector_has_the_elements_of_its_blocks(count: int, length: int, stride: int, items: int) -> None:
    datatype = MPI.INT.Create_vector(count, length, stride)
    one = [block * stride + each for block in range(count) for each in range(length)]
    data = np.arange(400, dtype=np.intc)
    extent = datatype.Get_extent()[1] // 4
    message = buffers.message([data[150:], items, datatype]) if min(one, default=0) >= 0 else None
    assert datatype.Get_size() == 4 * len(one)
    if message is not None:
        assert message.array.tolist() == [150 + item * extent + each for item in range(items) for each in one]


@given(st.lists(st.tuples(SMALL, st.integers(0, 30)), max_size=6))
def test_indexed_types_have_blocks_in_their_order(blocks: list[tuple[int, int]]) -> None:
    lengths, starts = [length for length, _ in blocks], [start for _, start in blocks]
    expected = [start + each for length, start in blocks for each in range(length)]
    assert elements(MPI.INT.Create_indexed(lengths, starts)) == expected
    assert elements(MPI.INT.Create_hindexed(lengths, [4 * start for start in starts])) == expected
    again = pickle.loads(pickle.dumps(MPI.INT.Create_indexed(lengths, starts)))
    assert elements(again) == expected


@pytest.mark.parametrize("order", [MPI.ORDER_C, MPI.ORDER_F])
def test_a_subarray_is_a_slice(order: int) -> None:
    sizes, subsizes, starts = [4, 5, 6], [2, 3, 4], [1, 2, 0]
    array = np.arange(120, dtype=np.intc).reshape(sizes, order="C" if order == MPI.ORDER_C else "F")
    part = array[1:3, 2:5, 0:4]
    expected = part.ravel(order="C" if order == MPI.ORDER_C else "F").tolist()
    assert elements(MPI.INT.Create_subarray(sizes, subsizes, starts, order), size=120) == expected


@pytest.mark.parametrize("kind", [MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC])
def test_the_parts_of_a_distributed_array_are_the_whole(kind: int) -> None:
    parts = [
        elements(MPI.INT.Create_darray(6, rank, [7, 8], [kind] * 2, [MPI.DISTRIBUTE_DFLT_DARG] * 2, [3, 2]), size=56)
        for rank in range(6)
    ]
    assert sorted(each for part in parts for each in part) == list(range(56))


def test_columns_follow_each_other_by_a_resized_extent() -> None:
    column = MPI.INT.Create_vector(4, 1, 5).Create_resized(0, 4).Commit()
    assert elements(column, 2, size=20) == [0, 5, 10, 15, 1, 6, 11, 16]


def test_a_structure_of_several_types_travels_as_bytes() -> None:
    cells = np.zeros(3, np.dtype([("number", "i4"), ("value", "f8")], align=True))
    cells["number"], cells["value"] = [1, 2, 3], [0.5, 1.5, 2.5]
    datatype = MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.INT, MPI.DOUBLE])
    assert (datatype.size, datatype.extent, datatype.true_extent) == (12, 16, 16)
    message = buffers.message([cells, 3, datatype], writable=True)
    assert (message.array.dtype.name, message.array.size) == ("uint8", 36)
    message.array[:12] = 0
    message.write_back()
    assert cells.tolist() == [(0, 0.0), (2, 1.5), (3, 2.5)]


@given(st.integers(0, 24))
def test_a_short_message_is_written_back_as_far_as_it_came(size: int) -> None:
    data = np.full(20, -1, np.intc)
    message = buffers.message([data, 2, MPI.INT.Create_vector(3, 1, 3)], writable=True)
    message.array[:] = 0
    message.write_back(size)
    expected = np.full(20, -1, np.intc)
    for byte in range(size):
        where = [0, 3, 6, 7, 10, 13][byte // 4]
        expected.view(np.uint8)[4 * where + byte % 4] = 0
    assert data.tolist() == expected.tolist()


def test_what_is_outside_of_the_buffer_is_an_error() -> None:
    data = np.zeros(9, np.intc)
    with pytest.raises(ValueError, match=r"^buf has 36 bytes, and 1 items of the datatype are bytes 0 to 40"):
        buffers.message([data, 1, MPI.INT.Create_vector(2, 1, 9)], what="buf")
    with pytest.raises(ValueError, match="bytes -4 to"):
        buffers.message([data, 1, MPI.INT.Create_indexed([1], [-1])], what="buf")
    with pytest.raises(ValueError, match=r"names MPI\.DATATYPE_NULL"):
        buffers.message([data, 1, MPI.DATATYPE_NULL], what="buf")


def test_addresses_in_place_of_a_buffer() -> None:
    first, second = np.arange(3.0), np.arange(5.0)
    places = [MPI.Get_address(first), MPI.Get_address(second)]
    datatype = MPI.DOUBLE.Create_hindexed([3, 5], places)
    message = buffers.message([MPI.BOTTOM, 1, datatype], writable=True)
    assert message.array.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    message.array[:] = 7
    message.write_back()
    assert first.tolist() == [7] * 3
    assert second.tolist() == [7] * 5


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ([np.arange(6), [1, 2, 3]], [[0], [1, 2], [3, 4, 5]]),
        ([np.arange(6), ([1, 2, 1], [4, 1, 0])], [[4], [1, 2], [0]]),
        ([np.arange(6), [1, 2, 1], [4, 1, 0], MPI.LONG], [[4], [1, 2], [0]]),
        ([np.arange(7), None], [[0, 1, 2], [3, 4], [5, 6]]),
        (np.arange(6), [[0, 1], [2, 3], [4, 5]]),
        ([np.arange(6), (1, 2)], [[0], [2], [4]]),
        ([np.arange(6), ([1, 1, 1], [0, 2, 1]), MPI.LONG.Create_vector(2, 1, 2)], [[0, 2], [6, 8], [3, 5]]),
    ],
)
def test_blocks_with_counts_and_displacements(spec: Any, expected: list[list[int]]) -> None:
    if expected[1] == [6, 8]:
        spec = [np.arange(12), *spec[1:]]
    assert [block.array.tolist() for block in buffers.vector(spec, 3)] == expected


def test_blocks_with_their_own_types() -> None:
    data = np.arange(4, dtype=np.intc)
    blocks = buffers.vector_w([data, [1, 2], [0, 4], [MPI.INT, MPI.SHORT]], 2)
    assert [block.array.tolist() for block in blocks] == [[0], [1, 0]]
    assert [block.array.size for block in buffers.vector_w([data, [MPI.INT, MPI.DOUBLE]], 2)] == [1, 1]


def test_types_say_how_they_were_made() -> None:
    datatype = MPI.INT.Create_vector(2, 3, 4)
    assert datatype.Get_envelope() == (3, 0, 0, 1, MPI.COMBINER_VECTOR)
    base, combiner, params = datatype.decode()
    assert (base, combiner, params) == (MPI.INT, "VECTOR", {"count": 2, "blocklength": 3, "stride": 4})
    assert datatype.Get_contents() == ([2, 3, 4], [], [], [MPI.INT])
    struct = MPI.Datatype.Create_struct([1, 2], [0, 8], [MPI.INT, datatype])
    assert struct.decode()[2]["datatypes"] == [MPI.INT, datatype]
    datatype.Free()
    assert datatype == MPI.DATATYPE_NULL
    assert struct.size == 4 + 2 * 24


def test_predefined_types() -> None:
    assert MPI.Datatype(MPI.INT) == MPI.INT != MPI.FLOAT
    assert pickle.loads(pickle.dumps(MPI.INT)) is MPI.INT
    assert MPI.Datatype.fromcode("d") is MPI.DOUBLE
    assert (MPI.C_BOOL.tocode(), MPI.CHAR.typestr, MPI.INT_INT.typestr) == ("b1", "S1", "V8")
    assert MPI.Datatype.Match_size(MPI.TYPECLASS_REAL, 8) == MPI.REAL8
    assert MPI.Datatype.Get_value_index(MPI.DOUBLE, MPI.INT) == MPI.DOUBLE_INT
    assert (MPI.DOUBLE_INT.size, MPI.DOUBLE_INT.extent) == (12, 16)
    with pytest.raises(MPI.Exception) as caught:
        MPI.INT.Free()
    assert caught.value.Get_error_class() == MPI.ERR_TYPE
    with pytest.raises(MPI.Exception):
        MPI.DATATYPE_NULL.Get_size()


@pytest.mark.parametrize("code", ["?", "b", "h", "i", "q", "f", "d", "g", "F", "D", "G"])
def test_packing(code: str) -> None:
    datatype = MPI.Datatype.fromcode(code)
    data, back = np.arange(5).astype(code), np.zeros(5, code)
    own, external = bytearray(datatype.Pack_size(5, MPI.COMM_SELF) + 3), bytearray(300)
    assert datatype.Pack(data, own, 3, MPI.COMM_SELF) == len(own)
    assert datatype.Unpack(own, 3, back, MPI.COMM_SELF) == len(own)
    assert back.tolist() == data.tolist()
    back[:] = 0
    end = datatype.Pack_external("external32", data, external, 0)
    assert end == datatype.Pack_external_size("external32", 5)
    assert datatype.Unpack_external("external32", external, 0, back) == end
    assert back.tolist() == data.tolist()
    with pytest.raises(MPI.Exception):
        datatype.Pack(data, own, 4, MPI.COMM_SELF)


PARTICLE = MPI.Datatype.Create_struct([1, 3], [0, 8], [MPI.INT, MPI.DOUBLE])


@pytest.mark.parametrize(
    ("datatype", "received", "items", "elements"),
    [
        (MPI.INT.Create_contiguous(3), 24, 2, 6),
        (MPI.INT.Create_contiguous(3), 20, MPI.UNDEFINED, 5),
        (MPI.INT.Create_contiguous(3), 18, MPI.UNDEFINED, MPI.UNDEFINED),
        (MPI.DOUBLE_INT, 24, 2, 4),
        (MPI.DOUBLE_INT, 20, MPI.UNDEFINED, 3),
        (PARTICLE, 56, 2, 8),
        (PARTICLE, 48, MPI.UNDEFINED, 7),
        (PARTICLE, 4, MPI.UNDEFINED, 1),
        (PARTICLE, 10, MPI.UNDEFINED, MPI.UNDEFINED),
        (PARTICLE.Create_contiguous(2), 28, MPI.UNDEFINED, 4),
        (MPI.DOUBLE, 16, 2, 2),
        (MPI.BYTE, 16, 16, 16),
        (MPI.INT.Create_contiguous(0), 0, 0, 0),
    ],
)
def test_a_status_has_the_items_and_the_basic_elements(
    datatype: MPI.Datatype, received: int, items: int, elements: int
) -> None:
    status = MPI.Status()
    status.count = received
    assert (status.Get_count(datatype), status.Get_elements(datatype)) == (items, elements)
    if elements != MPI.UNDEFINED:
        status.count = 99
        status.Set_elements(datatype, elements)
        assert status.count == received


@pytest.mark.parametrize(
    "make",
    [
        lambda: MPI.INT.Create_subarray([4], [3], [2]),
        lambda: MPI.INT.Create_subarray([4], [2], [-1]),
        lambda: MPI.INT.Create_subarray([4, 4], [2, 2], [0]),
        lambda: MPI.INT.Create_darray(4, 4, [8, 8], [0, 0], [-1, -1], [2, 2]),
        lambda: MPI.INT.Create_darray(4, 0, [8, 8], [0, 0], [-1, -1], [2, 1]),
        lambda: MPI.INT.Create_darray(4, 0, [8, 8], [0, 0], [-1], [2, 2]),
        lambda: MPI.Datatype.Create_struct([1], [0, 4], [MPI.INT, MPI.INT]),
        lambda: MPI.Datatype.Create_struct([1], [0], [MPI.INT, MPI.INT]),
        lambda: MPI.Datatype.fromcode("nothing"),
    ],
)
def test_a_type_that_cannot_be_is_an_error_when_it_is_made(make: Callable[[], MPI.Datatype]) -> None:
    with pytest.raises(MPI.Exception) as wrong:
        make()
    assert wrong.value.Get_error_class() == MPI.ERR_ARG


def test_errors_name_the_kinds_of_objects_as_programs_do() -> None:
    with pytest.raises(MPI.Exception, match="this Datatype is null"):
        MPI.DATATYPE_NULL.Get_size()
    with pytest.raises(TypeError, match="Datatype is expected, not Op"):
        MPI.Datatype(MPI.SUM)


def test_external32_is_big_endian() -> None:
    packed = bytearray(12)
    MPI.INT.Pack_external("external32", np.array([1, 2], np.intc), packed, 0)
    assert packed[:8] == bytes([0, 0, 0, 1, 0, 0, 0, 2])
    assert MPI.LONG.Pack_external("external32", np.array([-2]), packed, 0) == 4
    assert packed[:4] == b"\xff\xff\xff\xfe"
    with pytest.raises(MPI.Exception, match="four bytes for a long"):
        MPI.LONG.Pack_external("external32", np.array([1 << 40]), packed, 0)


def test_a_column_is_sent_and_received_as_a_row() -> None:
    def program(comm: Communicator) -> list[float]:
        matrix = np.arange(12.0).reshape(3, 4)
        column = MPI.DOUBLE.Create_vector(3, 1, 4)
        if comm.rank == 0:
            comm.Send([matrix, 1, column], 1)
            comm.Send(matrix[2], 1)
            return []
        row, target = np.zeros(3), np.zeros((4, 3))
        comm.Recv(row, 0)
        comm.Recv([target, 1, MPI.DOUBLE.Create_vector(4, 1, 3)], 0)
        return [*row, *target[:, 0], *target[:, 1]]

    assert run(2, program, FakeNics())[1] == [0, 4, 8, 8, 9, 10, 11, 0, 0, 0, 0]
