"""What a NIC says of its process, of its connections in sums, and of what its collectives wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import softnic
from softnic.commands.waits import collective_lines
from softnic.ipc import control
from softnic.ipc.work_queue import WorkCompletion
from tests.daemon.nics import Nic, pair, read_all, running, until
from tests.daemon.test_collectives import group


@pytest.fixture(scope="module")
def three() -> Iterator[list[Nic]]:
    with running(3) as nics:
        yield nics


def stats(nic: Nic) -> control.NicStats:
    with nic.client() as client:
        return client.stats()


def test_process_and_connections(three: list[Nic]) -> None:
    first = stats(three[0])
    assert first.process.resident_bytes > 1 << 20
    assert first.process.cpu > 0
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for _ in range(3) for end in pair(three)]
        listening = stack.enter_context(three[0].server())
        for end in ends[::2]:
            end.sendall(bytes(1000))
        for end in ends[1::2]:
            read_all(end, 1000)
        until(lambda: not stats(three[0]).info.unacknowledged)
        found = stats(three[0])
        assert found.totals.states == {"ESTABLISHED": 3, "LISTEN": 1}
        [peer] = found.totals.peers
        assert (peer.address, peer.streams, peer.send_queue) == ("10.77.0.2", 3, 0)
        assert 0 < peer.srtt <= peer.srtt_max
        assert found.process.uptime > first.process.uptime
        assert found.process.started == first.process.started
        assert listening.getsockname()[0] == "10.77.0.1"


def test_collectives_in_progress_are_summed_and_named(three: list[Nic]) -> None:
    sources, results = ([softnic.zeros(300) for _ in range(3)] for _ in range(2))
    with group(three) as ranks:
        before = stats(three[0]).counters
        for rank in (0, 1):
            ranks[rank].post(sources[rank], results[rank])
        until(lambda: all(link.expected == 1 for link in stats(three[0]).communicators[0].links if link.rank == 2))
        waiting = stats(three[0])
        [communicator] = waiting.communicators
        [op] = communicator.operations
        assert waiting.collectives.in_progress == 1
        assert op.age_s >= waiting.collectives.oldest > 0
        [line] = collective_lines([communicator])
        assert line.startswith("rank 0 of 3  Iallreduce(300 x float32, op=SUM)  ")
        assert "rank 2: its call" in line.partition("waits for ")[2]
        ranks[2].post(sources[2], results[2])
        assert [rank.told() for rank in ranks] == [WorkCompletion(1)] * 3
        done = stats(three[0])
        assert (done.collectives.in_progress, done.collectives.oldest) == (0, 0)
        took = done.counters["collectives_microseconds"] - before["collectives_microseconds"]
        assert took >= 1e6 * waiting.collectives.oldest
        assert collective_lines(done.communicators) == []


def test_what_a_process_has_not_copied_yet_is_waited_for(three: list[Nic]) -> None:
    with group(three) as ranks:
        sources, results = ([softnic.zeros(300) for _ in range(3)] for _ in range(2))
        for rank, source, result in zip(ranks, sources, results, strict=True):
            rank.post(source, result, staged=True)
        until(lambda: all(not link.expected for link in stats(three[0]).communicators[0].links))
        [line] = collective_lines(stats(three[0]).communicators)
        assert "this rank's process, which still copies what it needs" in line


def test_a_failure_is_kept(three: list[Nic]) -> None:
    with group(three) as ranks:
        source, result = softnic.zeros(30), softnic.zeros(30)
        ranks[0].post(source, result)
        ranks[1].close()
        ranks[0].told()
        assert stats(three[0]).failed[-1].at_fault == 1
