"""Elements of every type in every call: exact, and compressed by whatever way they travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import MPI, codecs
from softnic.codecs.combine import narrow, widen
from softnic.collectives import elements
from softnic.collectives.elements import BFLOAT16, carried, convert, kind_of, name_of, named
from softnic.collectives.operations import ARRAY_OPS
from softnic.collectives.schedule import blocks
from softnic.mpi.communicator import Communicator
from tests.comm.engine_nics import SocketStream
from tests.mpi.ranks import gradient, run

Array = npt.NDArray[Any]
HALVES = {"float16": MPI.FLOAT16, "bfloat16": MPI.BFLOAT16}
FLOATS = ["float16", "bfloat16", "float64"]
EXACT = ["bool", "int8", "uint16", "int64", "complex64", "complex128"]
OPS = [MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX]


def contribution(rank: int, count: int, name: str) -> Array:
    """Floats of which sums round; small numbers of other types."""
    if name == "float64":
        return np.random.default_rng(rank + 1).standard_normal(count) * 0.01
    if name in HALVES:
        return narrow(gradient(rank, count), np.empty(count, named(name)))
    return np.random.default_rng(rank + 1).integers(0, 3, count).astype(name)


def as_float32(array: Array) -> npt.NDArray[np.float32]:
    return array.astype(np.float32) if array.dtype == np.float64 else widen(array)


def from_float32(array: npt.NDArray[np.float32], name: str) -> Array:
    return array.astype(np.float64) if name == "float64" else narrow(array, np.empty(array.size, named(name)))


def ring(parts: list[Array], op: MPI.Op, codec: str | None) -> Array:
    """Algorithm 1 by hand: what all ranks hold in the end."""
    size, result = len(parts), np.empty_like(parts[0])
    rounded = (lambda array: array) if codec is None else codecs.get(codec).roundtrip
    for index, block in enumerate(blocks("allreduce", "ring", result.size, size)):
        partial = parts[index][block].copy()
        for step in range(1, size):
            sent = rounded(partial)
            ARRAY_OPS[op.name].combine(sent, parts[(index + step) % size][block], partial)
        result[block] = rounded(partial)
    return result


def test_names_and_kinds() -> None:
    for name in [*FLOATS, *EXACT]:
        assert name_of(named(name)) == name
    assert [kind_of(named(name)) for name in ("bfloat16", "float16", "bool", "complex64")] == ["f", "f", "b", "c"]
    assert MPI.BFLOAT16.Get_size() == MPI.FLOAT16.Get_size() == 2
    for name in ("float8", ">f4", "O", "U3"):
        with pytest.raises(ValueError, match="no element type"):
            named(name)


@pytest.mark.parametrize(
    ("name", "codec", "travels", "by"),
    [
        ("float32", "bounded:10", "float32", "bounded:10"),
        ("float64", "truncate:32", "float32", "truncate:32"),
        ("float16", "bounded:10", "float32", "bounded:10"),
        ("bfloat16", "bfp:14", "float32", "bfp:14"),
        ("bfloat16", "bfp:15", "bfloat16", None),
        ("float16", "truncate:15", "float32", "truncate:15"),
        ("float16", "truncate:16", "float16", None),
        ("int32", "bounded:10", "int32", None),
        ("complex64", "bfp:7", "complex64", None),
    ],
)
def test_what_travels_how(name: str, codec: str, travels: str, by: str | None) -> None:
    assert carried(named(name), codecs.get(codec)) == (named(travels), by and codecs.get(by))
    assert carried(named(name), None) == (named(name), None)


def test_float64_becomes_the_nearest_float32_or_infinity() -> None:
    wide = np.array([1 + 2.0**-24, 1 + 3 * 2.0**-24, 1e300, -1e300, 1e-300, np.nan])
    convert(wide, short := np.empty(6, np.float32))
    assert short[:5].tolist() == [1.0, 1 + 2.0**-22, np.inf, -np.inf, 0.0]
    assert np.isnan(short[5])
    convert(short, wide)
    assert wide[:2].tolist() == [1.0, 1 + 2.0**-22]


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("op", OPS, ids=str)
def test_halves_are_combined_as_halves(name: str, op: MPI.Op) -> None:
    """Each step rounds half to even; all ranks have the bits of the ring done by hand."""
    parts = [contribution(rank, 1003, name) for rank in range(3)]

    def program(comm: Communicator) -> tuple[bytes, bytes]:
        mine, datatype = parts[comm.rank], HALVES[name]
        apart, in_place = bytearray(mine.nbytes), mine.copy()
        comm.Allreduce_comp([mine, datatype], [apart, datatype], op, codec="raw", algorithm="ring")
        comm.Allreduce_comp(MPI.IN_PLACE, in_place, op, codec="raw", algorithm="ring")
        return bytes(apart), in_place.tobytes()

    expected = ring(parts, op, None).tobytes()
    assert run(3, program) == [(expected, expected)] * 3


@pytest.mark.parametrize("codec", ["bounded:10", "inceptionn:10", "bfp:7", "bfp:15", "truncate:12", "truncate:16"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_travel_as_float32_or_as_they_are(name: str, codec: str) -> None:
    parts = [contribution(rank, 1003, name) for rank in range(3)]
    if carried(named(name), codecs.get(codec))[1] is None:
        expected = ring(parts, MPI.SUM, None)
    else:
        expected = from_float32(ring([as_float32(part) for part in parts], MPI.SUM, codec), name)

    def program(comm: Communicator) -> tuple[bytes, bytes]:
        in_place, result = parts[comm.rank].copy(), np.empty_like(parts[0])
        comm.Allreduce_comp(parts[comm.rank], result, codec=codec, algorithm="ring")
        comm.Allreduce_comp(MPI.IN_PLACE, in_place, codec=codec, algorithm="ring")
        return result.tobytes(), in_place.tobytes()

    assert run(3, program) == [(expected.tobytes(),) * 2] * 3


@pytest.mark.parametrize("name", EXACT)
def test_what_is_no_float_is_exact_in_every_compressed_call(name: str) -> None:
    SocketStream.rounded_bytes = 0
    op = MPI.LXOR if name == "bool" else MPI.SUM

    def program(comm: Communicator) -> None:
        mine = contribution(comm.rank, 60, name)
        pairs: list[tuple[Array, Array]] = []
        for exact, comp in (
            (comm.Allreduce, comm.Allreduce_comp),
            (comm.Reduce_scatter, comm.Reduce_scatter_comp),
            (comm.Reduce_scatter_block, comm.Reduce_scatter_block_comp),
        ):
            pairs.append((np.zeros(60, name), np.zeros(60, name)))
            for call, result in zip((exact, comp), pairs[-1], strict=True):
                keywords = {"op": op} if call is exact else {"op": op, "codec": "bounded:10"}
                call(mine, result[:20] if call.__name__.endswith(("block", "block_comp")) else result, **keywords)
        gathered, other = np.empty(180, name), np.empty(180, name)
        comm.Allgather(mine, gathered)
        comm.Allgather_comp(mine, other, codec="bounded:10")
        pairs.append((gathered, other))
        for first, second in pairs:
            assert first.tobytes() == second.tobytes()
        sent = contribution(1, 60, name)
        sent.flags.writeable = comm.rank != 1
        comm.Bcast_comp(sent, root=1, codec="bounded:10")
        assert sent.tobytes() == contribution(1, 60, name).tobytes()

    run(3, program)
    assert SocketStream.rounded_bytes == 0


@pytest.mark.parametrize("name", FLOATS)
def test_every_other_compressed_collective(name: str) -> None:
    """Through float32: what float32 arrays of the same numbers give, brought back."""
    size, count, codec = 3, 120, "bounded:8"

    def program(comm: Communicator) -> None:
        mine, rank = contribution(comm.rank, count, name), comm.rank
        wide = as_float32(mine)

        def same(got: Array, floats: npt.NDArray[np.float32]) -> None:
            assert got.tobytes() == from_float32(floats, name).tobytes()

        total, floats = np.zeros_like(mine), np.zeros_like(wide)
        for root in range(size):
            comm.Reduce_comp(mine, total, root=root, codec=codec)
            comm.Reduce_comp(wide, floats, root=root, codec=codec)
            same(total, floats)
        block, blocks32 = np.empty_like(mine[:40]), np.empty(40, np.float32)
        comm.Reduce_scatter_block_comp(mine, block, codec=codec)
        comm.Reduce_scatter_block_comp(wide, blocks32, codec=codec)
        same(block, blocks32)
        in_place = mine.copy()
        comm.Reduce_scatter_comp(MPI.IN_PLACE, in_place, [40] * size, codec=codec)
        same(in_place[:40], blocks32)
        assert in_place[40:].tobytes() == mine[40:].tobytes()
        gathered, gathered32 = np.empty(size * count, mine.dtype), np.empty(size * count, np.float32)
        comm.Allgather_comp(wide, gathered32, codec=codec)
        comm.Allgather_comp(mine, gathered, codec=codec)
        same(gathered, gathered32)
        gathered.view(np.uint8)[:] = 0
        gathered[count * rank : count * (rank + 1)] = mine
        comm.Allgather_comp(MPI.IN_PLACE, gathered, codec=codec)
        same(gathered, gathered32)
        comm.Bcast_comp(mine, root=2, codec=codec)
        same(mine, codecs.get(codec).roundtrip(as_float32(contribution(2, count, name))))

    run(size, program)


@pytest.mark.parametrize("name", [*FLOATS, "int32"])
def test_one_rank_rounds_nothing(name: str) -> None:
    def program(comm: Communicator) -> None:
        mine = contribution(0, 99, name)
        comm.Allreduce_comp(MPI.IN_PLACE, mine, codec="truncate:8")
        comm.Bcast_comp(mine, codec="truncate:8")
        assert mine.tobytes() == contribution(0, 99, name).tobytes()

    run(1, program)


@pytest.mark.parametrize("codec", ["bounded:8", "truncate:16", "raw"])
@pytest.mark.parametrize("name", [*FLOATS, "int32"])
def test_messages(name: str, codec: str) -> None:
    """Received in full and into longer buffers, with or without the codec's name; Status counts what was received."""

    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            for _ in range(2):
                comm.Send_comp(contribution(0, 77, name), 1, codec=codec)
            return
        expected = contribution(0, 77, name)
        dtype, by = carried(expected.dtype, None if codec == "raw" else codecs.get(codec))
        if by is not None:
            assert dtype == np.float32
            expected = from_float32(by.roundtrip(as_float32(expected)), name)
        for named_codec in (codec, None):
            data, status = np.zeros(80, expected.dtype), MPI.Status()
            comm.Recv_comp(data, 0, status=status, codec=named_codec)
            assert data[:77].tobytes() == expected.tobytes()
            assert not any(data[77:].tobytes())
            assert status.count == expected.nbytes

    run(2, program)


def test_elements_is_all_that_knows_bfloat16() -> None:
    """An array of it can be copied and cut, and cannot be mistaken for integers."""
    array = np.zeros(4, BFLOAT16)
    array[1:2] = array[:1]
    assert array.dtype != np.uint16
    assert elements.BFLOAT16 is MPI.BFLOAT16.dtype
