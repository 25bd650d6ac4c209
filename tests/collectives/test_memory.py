"""Memory that is lent, overwritten and decoded to: nobody ever sees half of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softnic import codecs
from softnic.collectives import schedule
from softnic.collectives.operations import SUM
from softnic.collectives.schedule import RecvBlock, Schedule, SendBlock
from softnic.ipc.work_queue import RecvRequest, SendRequest
from softnic.tcp.connection import Connection

from .byhand import executed
from .group import LOSSY, Group, raw
from .test_engine import check, contributions

SLOW = {"rate_bps": 2e8, "delay_s": 2e-3}
"""So that much is lent and not acknowledged for long."""


def copied_out(connection: Connection) -> int:
    """Return how many zero-copy bytes a connection has copied so that the writer had its memory back."""
    return connection.snd.buffer.zerocopy.copied_out


def doubling(rank: int, size: int) -> Schedule:
    """Recursive doubling of the whole buffer: what is sent is overwritten by what comes, and nothing says in what came
    that the other has got it."""
    steps: list[SendBlock | RecvBlock] = []
    bit = 1
    while bit < size:
        last = 2 * bit == size
        steps += [SendBlock(rank ^ bit, 0), RecvBlock(rank ^ bit, 0, combine=True, last=last)]
        bit *= 2
    return tuple(steps)


@pytest.mark.parametrize(
    ("size", "link"),
    [(2, None), (4, None), (8, None), (2, SLOW), (4, SLOW), (8, SLOW), (2, LOSSY), (4, LOSSY)],
    ids=str,
)
@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_sent_is_overwritten_in_place(
    monkeypatch: pytest.MonkeyPatch, size: int, link: dict[str, Any] | None, in_place: bool
) -> None:
    monkeypatch.setattr(schedule, "plan", lambda _c, _a, rank, size, _root=0: doubling(rank, size))
    monkeypatch.setattr(schedule, "blocks", lambda _c, _a, count, _size: (slice(0, count),))
    group = Group(size, seed=size, link=link)
    for count, codec in ((10, ""), (9_001, "bfp:7"), (200_003, ""), (150_000, "bounded:10")):
        sources = contributions(size, count)
        results = group.collective("allreduce", sources, op="SUM", codec=codec, in_place=in_place)
        for result, wanted in zip(
            results, executed("allreduce", "ring", sources, op=SUM, codec=codec), strict=True
        ):  # compressed, not the same everywhere: such a schedule would not do
            assert result.tobytes() == wanted.tobytes()


def test_what_a_result_acknowledges_is_overwritten_without_a_copy() -> None:
    """The acknowledgement comes with the result, in one segment. At the end of a call, up to 1 MiB is copied."""
    group, sources = Group(2, link={"rate_bps": 1e10, "delay_s": 1e-3}), contributions(2, 1 << 20)
    connections = [connection for ends in group.data for connection in ends.values()]
    for calls in (1, 2):
        group.collective("allreduce", sources, algorithm="direct", op="SUM", in_place=True)
        assert max(map(copied_out, connections)) <= calls << 20


def test_a_message_waits_for_acknowledgements_rather_than_copy() -> None:
    """But for its last 64 KiB."""
    group = Group(2, link={"rate_bps": 1e10, "delay_s": 1e-3}, messages=True)
    sent, received = np.arange(1 << 18, dtype=np.float32), np.zeros(1 << 18, np.float32)
    requests: tuple[SendRequest | RecvRequest, ...] = (
        SendRequest(-1, "Send", 1, (0, 0), sent.nbytes),
        RecvRequest(-1, "Recv", 0, (0, 0), sent.nbytes),
    )
    for member, request, array in zip(group.members, requests, (sent, received), strict=True):
        member.posted += 1
        assert member.executor is not None
        member.executor.post_message(request, raw(array))
    group.run()
    assert received.tobytes() == sent.tobytes()
    assert 0 < copied_out(group.messages[0][0][1]) <= 64 << 10


def test_a_long_own_block_is_rounded_as_it_is_sent() -> None:
    """Not all of it before anything goes, and no more than that before the next turn."""
    group = Group(2, link={"rate_bps": 1e9, "delay_s": 1e-4})
    source = contributions(1, 8 << 20)[0]
    arrays = [source.copy(), np.zeros_like(source)]
    for rank, array in enumerate(arrays):
        group.post(rank, array, array, "bcast", root=0, codec="bounded:8")
    group.clock.run_for(group.members, 1e-3)
    assert 0 < np.count_nonzero(arrays[0] != source) < source.size // 2
    group.run()
    assert arrays[0].tobytes() == arrays[1].tobytes() == codecs.get("bounded:8").roundtrip(source).tobytes()


def test_sources_stay_as_they_are_and_results_lie_where_they_should() -> None:
    group = Group(3, link=SLOW)
    memory = [np.full(3_000, 9, np.float32) for _ in range(3)]
    for rank, array in enumerate(memory):
        array[100:1100] = rank + 1
        group.post(rank, array[100:1100], array[1500:2500], "allreduce", op="SUM")
    group.run()
    for rank, array in enumerate(memory):
        assert (array[:100] == 9).all()
        assert (array[100:1100] == rank + 1).all()
        assert (array[1100:1500] == 9).all()
        assert (array[1500:2500] == 6).all()
        assert (array[2500:] == 9).all()


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_memory_without_alignment(offset: int) -> None:
    group = Group(2)
    arrays = [np.zeros(8 * 10_001 + 16, np.uint8)[offset : offset + 8 * 10_001].view(np.float64) for _ in range(2)]
    for rank, array in enumerate(arrays):
        array[:] = rank + 0.5
        group.post(rank, array, array, "allreduce", op="SUM")
    group.run()
    assert all((array == 2.0).all() for array in arrays)


@pytest.mark.parametrize("dtype", ["int8", "float64", "complex128"])
def test_elements_that_lie_across_segments(dtype: str) -> None:
    """A first request of an odd number of bytes shifts all that follow against the frames."""
    group = Group(3)
    for count in (7, 1_001):
        check(group, "allreduce", "ring", contributions(3, count, "int8"))
    for algorithm in ("ring", "tree", "direct"):
        sources = contributions(3, 120_001, dtype)
        check(group, "allreduce", algorithm, sources)


def test_memory_is_the_process_s_again_when_it_is_told() -> None:
    """What it writes then reaches nobody, though bytes may have been lost and go again."""
    group = Group(4, seed=3, link=LOSSY)
    sources = contributions(4, 100_000, "int64")
    expected = np.sum(sources, axis=0)
    arrays = [source.copy() for source in sources]
    results: list[Any] = [None] * 4
    for rank, array in enumerate(arrays):
        group.post(rank, array, array, "allreduce", op="SUM")

    def all_told() -> bool:
        for member in group.members:
            if member.completed and results[member.rank] is None:
                results[member.rank] = arrays[member.rank].copy()
                arrays[member.rank][:] = -1
        return all(result is not None for result in results)

    group.clock.run(group.members, all_told, 30.0)
    for result in results:
        assert np.array_equal(result, expected)
