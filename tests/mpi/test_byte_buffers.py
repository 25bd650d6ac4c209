"""Buffers of bytes with a datatype in the list: elements are counted by the datatype, whatever the buffer's own are."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import MPI
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

SIZE, COUNT = 3, 6
CODEC = "truncate:16"
"""Which keeps small integers as they are."""
Floats = npt.NDArray[np.float32]
Wrap = Callable[[Floats], Any]


_kept: list[Floats] = []
"""Arrays whose memory is used by its address."""


def at_address(data: Floats) -> MPI.memory:
    _kept.append(data)
    return MPI.memory.fromaddress(data.ctypes.data, data.nbytes)


WRAPS: dict[str, Wrap] = {
    "memory of an address": at_address,
    "memory": MPI.memory.frombuffer,
    "bytearray": lambda data: bytearray(data.tobytes()),
    "memoryview": lambda data: data.data.cast("B"),
    "array.array": lambda data: array.array("h", data.tobytes()),
    "array of another type": lambda data: data.view(np.float64) if data.size % 2 == 0 else data.view(np.int16),
}


def block(rank: int, to: int = 0) -> Floats:
    return (np.arange(COUNT) + 10 * rank + to).astype(np.float32)


ALL = np.concatenate([block(rank) for rank in range(SIZE)])


def summed(ranks: int) -> Floats:
    """Return the sum of the blocks of the first ranks."""
    total: Floats = np.zeros(COUNT, np.float32)
    for rank in range(ranks):
        total += block(rank)
    return total


TOTAL = summed(SIZE)
COUNTS, STARTS = [1, 2, 3], [0, 2, 5]
"""Items of each rank in the v-forms, and where they are."""


def uneven(rank: int) -> Floats:
    return block(rank)[: COUNTS[rank]]


def placed(parts: list[Floats]) -> Floats:
    """Return blocks at their places, with -1 between."""
    found = np.full(8, -1, np.float32)
    for start, part in zip(STARTS, parts, strict=True):
        found[start : start + part.size] = part
    return found


class Case:
    """One call: its name, what a rank gives and gets, and the counts in its lists; None: that of the whole."""

    def __init__(
        self, name: str, given: Callable[[int], Floats], expected: Callable[[int], Floats | None], **counts: Any
    ) -> None:
        self.name, self.given, self.expected, self.counts = name, given, expected, counts

    def run(self, comm: Communicator, name: str, wrap: Wrap, **keywords: Any) -> None:
        rank = comm.rank
        sent, expected = self.given(rank), self.expected(rank)
        room = np.full(1 if expected is None else expected.size, -1, np.float32)
        memories = [wrap(np.ascontiguousarray(sent)), wrap(room)]
        lists = [
            [memory, *((counts,) if (counts := self.counts.get(which)) is not None else ()), MPI.FLOAT]
            for memory, which in zip(memories, ("send", "receive"), strict=True)
        ]
        if callable(self.counts.get("send")):
            lists[0][1] = self.counts["send"](rank)
        if callable(self.counts.get("receive")):
            lists[1][1] = self.counts["receive"](rank)
        made = getattr(comm, name)(*lists, **keywords)
        if made is not None:
            made.Wait()
        if expected is not None:
            np.testing.assert_array_equal(np.frombuffer(memories[1], np.float32), expected, err_msg=f"{name} on {rank}")


def before(rank: int) -> Floats:
    """Return what Exscan gives a rank: rank 0 nothing."""
    return summed(rank) if rank else np.full(COUNT, -1, np.float32)


CASES = [
    Case("Allgather", block, lambda _: ALL, send=COUNT, receive=COUNT),
    Case("Allgather", block, lambda _: ALL),
    Case("Gather", block, lambda rank: ALL if rank == 0 else None, send=COUNT, receive=COUNT),
    Case("Scatter", lambda _: ALL, block, send=COUNT, receive=COUNT),
    Case("Alltoall", lambda rank: np.concatenate([block(rank, to) for to in range(SIZE)]),
         lambda rank: np.concatenate([block(other, rank) for other in range(SIZE)]), send=COUNT, receive=COUNT),
    Case("Allgatherv", uneven, lambda _: placed([uneven(each) for each in range(SIZE)]),
         send=lambda rank: COUNTS[rank], receive=(COUNTS, STARTS)),
    Case("Gatherv", uneven, lambda rank: placed([uneven(each) for each in range(SIZE)]) if rank == 0 else None,
         send=lambda rank: COUNTS[rank], receive=(COUNTS, STARTS)),
    Case("Scatterv", lambda _: placed([uneven(each) for each in range(SIZE)]), uneven,
         send=(COUNTS, STARTS), receive=lambda rank: COUNTS[rank]),
    Case("Alltoallv", lambda rank: placed([block(rank, to)[: COUNTS[to]] for to in range(SIZE)]),
         lambda rank: np.concatenate([block(other, rank)[: COUNTS[rank]] for other in range(SIZE)]),
         send=(COUNTS, STARTS), receive=lambda rank: ([COUNTS[rank]] * SIZE, [COUNTS[rank] * r for r in range(SIZE)])),
    Case("Allreduce", block, lambda _: TOTAL, send=COUNT, receive=COUNT),
    Case("Allreduce", block, lambda _: TOTAL),
    Case("Reduce", block, lambda rank: TOTAL if rank == 0 else None, send=COUNT, receive=COUNT),
    Case("Reduce_scatter_block", block, lambda rank: TOTAL[2 * rank : 2 * rank + 2], send=2, receive=2),
    Case("Reduce_scatter", block, lambda rank: TOTAL[2 * rank : 2 * rank + 2], send=COUNT, receive=2),
    Case("Scan", block, lambda rank: summed(rank + 1), send=COUNT,
         receive=COUNT),
    Case("Exscan", block, before, send=COUNT, receive=COUNT),
]  # fmt: skip


@pytest.mark.parametrize("kind", WRAPS)
def test_every_collective_and_its_twins(kind: str) -> None:
    def program(comm: Communicator) -> None:
        for case in CASES:
            for name in (case.name, f"I{case.name.lower()}"):
                case.run(comm, name, WRAPS[kind])
                case.run(comm, f"{name}_comp", WRAPS[kind], codec=CODEC)

    run(SIZE, program)


@pytest.mark.parametrize("kind", WRAPS)
def test_broadcasts_messages_and_local_reductions(kind: str) -> None:
    wrap = WRAPS[kind]

    def got(memory: Any) -> list[float]:
        found: list[float] = np.frombuffer(memory, np.float32).tolist()
        return found

    def program(comm: Communicator) -> None:
        for keywords in ({}, {"codec": CODEC}):
            memory = wrap(block(comm.rank))
            (comm.Bcast_comp if keywords else comm.Bcast)([memory, COUNT, MPI.FLOAT], root=1, **keywords)
            assert got(memory) == block(1).tolist()
            memory, twin = wrap(np.zeros(COUNT, np.float32)), "_comp" if keywords else ""
            request = getattr(comm, f"Irecv{twin}")([memory, MPI.FLOAT], (comm.rank - 1) % SIZE)
            getattr(comm, f"Send{twin}")([wrap(block(comm.rank)), COUNT, MPI.FLOAT], (comm.rank + 1) % SIZE, **keywords)
            request.Wait()
            assert got(memory) == block((comm.rank - 1) % SIZE).tolist()
        total = wrap(block(1))
        MPI.SUM.Reduce_local([wrap(block(0)), COUNT, MPI.FLOAT], [total, COUNT, MPI.FLOAT])
        assert got(total) == (block(0) + block(1)).tolist()
        exchanged = wrap(np.zeros(SIZE * COUNT, np.float32))
        where = ([COUNT] * SIZE, [4 * COUNT * each for each in range(SIZE)])
        sent = wrap(np.concatenate([block(comm.rank, to) for to in range(SIZE)]))
        comm.Alltoallw([sent, where, [MPI.FLOAT] * SIZE], [exchanged, where, [MPI.FLOAT] * SIZE])
        assert got(exchanged) == np.concatenate([block(other, comm.rank) for other in range(SIZE)]).tolist()

    run(SIZE, program)


@pytest.mark.parametrize("comp", [False, True])
@pytest.mark.parametrize("kind", WRAPS)
def test_items_of_derived_types(kind: str, comp: bool) -> None:
    """Pairs without gaps; and a float in every second place, of which the others stay as they are."""
    wrap, keywords = WRAPS[kind], {"codec": CODEC} if comp else {}
    pair = MPI.FLOAT.Create_contiguous(2)
    spread = MPI.FLOAT.Create_resized(0, 8)

    def spaced(values: Floats) -> Floats:
        found = np.full(2 * values.size, -1, np.float32)
        found[::2] = values
        return found

    def program(comm: Communicator) -> None:
        call = getattr(comm, "Allgather_comp" if comp else "Allgather")
        vector = getattr(comm, "Allgatherv_comp" if comp else "Allgatherv")
        reduce = getattr(comm, "Allreduce_comp" if comp else "Allreduce")
        own = block(comm.rank)
        for datatype, count, spread_out in ((pair, COUNT // 2, np.array), (spread, COUNT, spaced)):
            sent = wrap(spread_out(own))
            for made, counts in ((call, count), (vector, [count] * SIZE)):
                room = wrap(np.full(spread_out(ALL).size, -1, np.float32))
                made([sent, count, datatype], [room, counts, datatype], **keywords)
                np.testing.assert_array_equal(np.frombuffer(room, np.float32), spread_out(ALL))
            room = wrap(np.full(spread_out(own).size, -1, np.float32))
            reduce([sent, count, datatype], [room, count, datatype], **keywords)
            np.testing.assert_array_equal(np.frombuffer(room, np.float32), spread_out(TOTAL))

    run(SIZE, program)


def test_masked_arrays_and_matrices_are_their_memory() -> None:
    """As in mpi4py: the mask is not sent, and masked elements are sent and received as others are."""

    def program(comm: Communicator) -> None:
        masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
        result = np.ma.masked_array(np.zeros(3), mask=[True, False, False])
        comm.Allreduce(masked, result)
        assert result.data.tolist() == [2, 4, 6]
        assert result.mask.tolist() == [True, False, False]
        matrix = np.zeros((2, 2)).view(np.matrix)
        comm.Allgather(np.array([[comm.rank, 5.0]]).view(np.matrix), matrix)
        assert matrix.tolist() == [[0, 5], [1, 5]]
        if comm.rank == 0:
            comm.Send(masked, 1)
        else:
            comm.Recv(result, 0)
            assert result.data.tolist() == [1, 2, 3]

    run(2, program)
