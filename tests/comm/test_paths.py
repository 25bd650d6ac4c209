"""How the ranks of a communicator agree on a plan for their links (softnic/comm/paths.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from softnic.collectives.schedule import EVEN
from softnic.collectives.schedule.paths import LARGE_BYTES, PathReport
from softnic.comm import messages
from softnic.comm.errors import CommError
from softnic.comm.paths import VARIABLE, CommPaths

FAST, SLOW = 1e8, 1e7


class FakePeer:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.reports: dict[int, messages.Paths] = {}
        self.absent = False


class FakeProgress:
    """Frames arrive at once, but for those of ranks that are `late`."""

    def __init__(self, rank: int, size: int, all_ranks: list[FakeProgress]) -> None:
        self.rank = rank
        self.peers = {other: FakePeer(other) for other in range(size) if other != rank}
        self.late: list[Callable[[], object]] | None = None
        self._all = all_ranks
        all_ranks.append(self)

    def post(self, peer: FakePeer, frame: messages.Frame) -> None:
        assert isinstance(frame, messages.Paths)
        deliver = partial(self._all[peer.rank].peers[self.rank].reports.__setitem__, frame.number, frame)
        if self.late is None:
            deliver()
        else:
            self.late.append(deliver)

    def run(self, done: Callable[[], bool]) -> None:
        if not done():
            raise TimeoutError("it waits")

    def missing(self, peer: FakePeer, what: str) -> CommError:
        return CommError(f"rank {peer.rank} has left without {what}")


class Job:
    """Ranks whose links have these rates, none known before the first call."""

    def __init__(self, rates: Sequence[float]) -> None:
        self.rates = [0.0] * len(rates)
        self._rates = list(rates)
        self.progress: list[FakeProgress] = []
        size = len(rates)
        self.paths = [
            CommPaths(rank, FakeProgress(rank, size, self.progress), partial(self._measure, rank))  # type: ignore[arg-type]
            for rank in range(size)
        ]

    def _measure(self, rank: int) -> PathReport:
        size = len(self.paths)
        return PathReport(self.rates[rank], tuple(0.0002 * (other != rank) for other in range(size)))

    def call(self, *, nbytes: int = LARGE_BYTES, blocking: bool = True) -> str:
        """Make an all-reduce on all ranks, one after the other. Return the plan that all have."""
        for each in self.paths:
            each.begin(blocking=blocking)
        for each in self.paths:
            each.count(nbytes)
        self.rates = list(self._rates)
        [text] = {str(each.plan) for each in self.paths}
        return text


def test_the_plan_is_made_of_what_calls_have_measured() -> None:
    job = Job([FAST, FAST, FAST, SLOW])
    assert [job.call() for _ in range(3)] == ["even", "even", "shares 33.3% 33.4% 33.3% 0%"]


def test_it_follows_when_the_links_change() -> None:
    job = Job([FAST, FAST, FAST, SLOW])
    for _ in range(60):
        job.call()
    job._rates = [SLOW, FAST, FAST, FAST]
    plans = [job.call() for _ in range(80)]
    assert plans[-1].startswith("shares 0%")
    assert len(set(plans)) == 2


def test_short_calls_neither_count_nor_report() -> None:
    job = Job([FAST, FAST, SLOW])
    assert {job.call(nbytes=LARGE_BYTES - 1) for _ in range(100)} == {"even"}
    assert not any(peer.reports for progress in job.progress for peer in progress.peers.values())


def test_nonblocking_calls_change_the_plan_later() -> None:
    """So that none of them waits for what another rank does after it."""
    job = Job([FAST, FAST, SLOW])
    plans = [job.call(blocking=False) for _ in range(200)]
    assert plans[:32] == ["even"] * 32
    changed = next(number for number, plan in enumerate(plans) if plan != "even")
    assert changed > 64
    assert set(plans[changed:]) == {plans[changed]}


def test_a_blocking_call_waits_for_the_reports() -> None:
    job = Job([FAST, FAST, SLOW])
    job.progress[1].late = []
    job.call(blocking=False)
    with pytest.raises(TimeoutError, match="it waits"):
        job.paths[0].begin(blocking=True)
    job.paths[0].begin(blocking=False)
    for deliver in job.progress[1].late:
        deliver()
    job.paths[0].begin(blocking=True)


def test_a_rank_that_has_left_reports_nothing() -> None:
    job = Job([FAST, FAST, SLOW])
    job.progress[1].late = []
    job.call(blocking=False)
    job.progress[0].peers[1].absent = True
    with pytest.raises(CommError, match="rank 1 has left without taking part"):
        job.paths[0].begin(blocking=True)


def test_any_rank_may_want_none(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job([FAST, FAST, SLOW])
    for number in range(4):
        for rank, each in enumerate(job.paths):
            monkeypatch.setenv(VARIABLE, "off" if rank == 1 else "")
            each.begin(blocking=True)
            each.count(LARGE_BYTES)
        job.rates = [FAST, FAST, SLOW]
        assert {each.plan for each in job.paths} == {EVEN}, number


def test_reports_of_another_size_are_taken_for_unknown() -> None:
    """Bytes of another rank are nothing that a plan may fail for."""
    job = Job([FAST, FAST, SLOW])
    for _ in range(2):
        job.call()
    own = next(iter(job.progress[0].peers[1].reports.values()))
    for progress in job.progress[::2]:
        progress.peers[1].reports[own.number] = messages.Paths(own.number, FAST, [1.0])
    job.paths[0].begin(blocking=True)
    assert job.paths[0].plan.sites == ""


@pytest.mark.parametrize("size", [1, 2])
def test_one_or_two_ranks_have_nothing_to_plan(size: int) -> None:
    job = Job([FAST, SLOW][:size])
    assert {job.call() for _ in range(5)} == {"even"}


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 1e30])
def test_what_is_no_rate_is_no_frame(wrong: float) -> None:
    reader = messages.Reader()
    with pytest.raises(ValueError, match="frame"):
        list(reader.feed(messages.pack(messages.Paths(1, wrong, []))))
