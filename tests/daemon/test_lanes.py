"""The further lanes of a communicator, with engines that do as the test says and posts in any order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives.collective_op import WHOLE, LanePart
from softnic.collectives.schedule import EXCHANGES
from softnic.collectives.stream import CODING_BLOCK
from softnic.ipc.work_queue import StagedPart, WorkCompletion, WorkFailed, WorkRequest
from softnicd.lanes import LEAST_BYTES, Lanes, Reply

MEMORY = memoryview(b"")
COUNTS = st.sampled_from([2, 3, 4, 8])
SEEDS = st.integers(0, 2**32 - 1)
LOST = WorkFailed(3, "rank 3 is gone")


def request(number: int, counts: tuple[int, ...] = (1 << 20,), collective: str = "allreduce") -> WorkRequest:
    """Return a request whose blocks have these sizes in bytes."""
    fields = (number, "I" + collective, collective, "ring", "uint8", counts, (0, 0), (0, 0))
    return WorkRequest(*fields, op="SUM", staged=True)


class FakeEngine:
    """The engine of a further lane: what it was asked to do, and what is in progress on it."""

    def __init__(self, report: Callable[[Reply], object]) -> None:
        self.report = report
        self.parts: dict[int, LanePart] = {}
        self.staged: list[StagedPart] = []
        self.failures: list[WorkFailed] = []
        self.ended = 0

    def begin(self, request: WorkRequest, source: memoryview, result: memoryview, part: LanePart) -> None:
        del source, result
        if not self.failures:
            assert request.number not in self.parts
            self.parts[request.number] = part

    def stage(self, part: StagedPart) -> None:
        self.staged.append(part)

    def start_rank(self, rank: int, now: float) -> None:
        raise AssertionError(f"rank {rank} was connected at {now}")

    def fail(self, rank: int, text: str) -> None:
        """Fail as an engine does: once."""
        if not self.failures:
            self.failures.append(WorkFailed(rank, text))
            self.parts.clear()
            self.report(self.failures[0])

    def end(self) -> None:
        self.ended += 1
        self.report(None)


class Communicator:
    """A communicator with `lanes` lanes, as OffloadedCollectives has it. Without a seed, what is posted is done at
    once; else later, in the order of each queue alone."""

    def __init__(self, lanes: int, seed: int | None = None) -> None:
        self.count = lanes
        self.random = None if seed is None else random.Random(seed)
        self.posted: list[deque[Callable[[], object]]] = [deque() for _ in range(lanes)]
        """By the lane whose queue does it."""
        self.engines = [FakeEngine(partial(self._post_reply, lane)) for lane in range(1, lanes)]
        self.lanes = Lanes([(each, partial(self._post, lane)) for lane, each in enumerate(self.engines, 1)])
        self.first: deque[WorkCompletion | WorkFailed] = deque()
        """Replies of the engine of the first lane."""
        self.first_failure: WorkFailed | None = None
        self.parts: dict[int, LanePart] = {}
        """Of the first lane."""
        self.replies: list[WorkCompletion | WorkFailed] = []
        """What the process gets."""

    def _post(self, lane: int, call: Callable[[], object]) -> None:
        if self.random is None:
            call()
        else:
            self.posted[lane].append(call)

    def _post_reply(self, lane: int, reply: Reply) -> None:
        self._post(0, partial(self._on_reply, lane, reply))

    def _on_reply(self, lane: int, reply: Reply) -> None:
        outcome = self.lanes.on_reply(lane, reply)
        if isinstance(outcome, WorkCompletion):
            self.replies.append(outcome)
        elif outcome is not None:
            self.fail(outcome)
        self.merge()

    def merge(self) -> None:
        self.replies += self.lanes.merge(self.first)
        assert not self.first

    def call_some(self) -> None:
        """Do some of what was posted."""
        assert self.random is not None
        for _ in range(self.random.randrange(4)):
            waiting = [each for each in self.posted if each]
            if waiting:
                self.random.choice(waiting).popleft()()

    def call_all(self) -> None:
        while any(self.posted):
            self.call_some()

    # What happens

    def begin(self, request: WorkRequest) -> None:
        part = self.lanes.part_of(request)
        if part is not WHOLE:
            self.lanes.begin(request, MEMORY, MEMORY)
        self.parts[request.number] = part

    def complete(self, lane: int, number: int) -> None:
        """The first collective in progress on a lane, or that one on the first lane, is complete there."""
        if lane:
            self.engines[lane - 1].parts.pop(number)
            self._post_reply(lane, WorkCompletion(number))
        else:
            del self.parts[number]
            self.first.append(WorkCompletion(number))
            self.merge()

    def fail(self, why: WorkFailed) -> None:
        """The engine of the first lane fails: once."""
        if self.first_failure is None:
            self.first_failure = why
            self.parts.clear()
            self.first.append(why)
            self.merge()

    @property
    def in_progress(self) -> list[tuple[int, int]]:
        """Lanes and numbers."""
        further = [(lane, number) for lane, engine in enumerate(self.engines, 1) for number in engine.parts]
        return [(0, number) for number in self.parts] + further


# Which collectives are cut


@pytest.mark.parametrize("collective", EXCHANGES)
def test_exchanges_are_never_cut(collective: str) -> None:
    assert Communicator(4).lanes.part_of(request(1, (1 << 20,) * 4, collective)) is WHOLE


def test_small_collectives_are_never_cut() -> None:
    lanes = Communicator(4).lanes
    assert lanes.part_of(request(1, (LEAST_BYTES - 1,))) is WHOLE
    assert lanes.part_of(request(1, (LEAST_BYTES // 2, LEAST_BYTES // 2))) == LanePart(0, 4)


def test_all_lanes_have_their_parts() -> None:
    communicator = Communicator(3)
    communicator.begin(request(1))
    parts = [communicator.parts[1], *(each.parts[1] for each in communicator.engines)]
    assert parts == [LanePart(lane, 3) for lane in range(3)]


def test_further_lanes_count_what_is_cut_alone() -> None:
    """Numbers of the work queue have gaps there, and an engine takes none."""
    communicator = Communicator(2)
    for number, size in enumerate((10, 1 << 20, 10, 1 << 20), 1):
        communicator.begin(request(number, (size,)))
    assert list(communicator.engines[0].parts) == [1, 2]
    communicator.complete(1, 2)
    communicator.complete(0, 4)
    assert communicator.replies == [WorkCompletion(4)]


# Completions


@given(COUNTS, SEEDS, st.integers(1, 8))
def test_one_completion_each_whatever_the_order_of_the_parts(lanes: int, seed: int, calls: int) -> None:
    draw, communicator = random.Random(seed), Communicator(lanes, seed)
    sizes = [draw.choice((10, 1 << 20)) for _ in range(calls)]
    for number, size in enumerate(sizes, 1):
        communicator.begin(request(number, (size,)))
        communicator.call_some()
    while any(communicator.posted) or communicator.in_progress:
        before, waiting = len(communicator.replies), communicator.in_progress
        if waiting:
            communicator.complete(*draw.choice(waiting))
        communicator.call_some()
        assert len(communicator.replies) >= before
    numbers = [reply.number for reply in communicator.replies if isinstance(reply, WorkCompletion)]
    assert sorted(numbers) == list(range(1, calls + 1))
    assert len(communicator.replies) == calls


@pytest.mark.parametrize("last", range(3))
def test_a_collective_is_complete_with_its_last_part(last: int) -> None:
    communicator = Communicator(3)
    communicator.begin(request(1))
    for lane in [each for each in range(3) if each != last]:
        communicator.complete(lane, 1)
        assert communicator.replies == []
    communicator.complete(last, 1)
    assert communicator.replies == [WorkCompletion(1)]


def test_the_rate_of_a_rank_is_that_of_all_its_lanes() -> None:
    lanes = Communicator(3).lanes
    lanes.begin(request(1), memoryview(b""), memoryview(b""))
    assert lanes.on_reply(2, WorkCompletion(1, 5.0)) is None
    assert lanes.merge(deque([WorkCompletion(1, 7.0)])) == []
    assert lanes.on_reply(1, WorkCompletion(1, 30.0)) == WorkCompletion(1, 42.0)


def test_a_collective_may_be_cancelled_until_its_last_part_is_complete() -> None:
    """The engine of the first lane knows nothing of it any more when its own part is complete."""
    communicator = Communicator(2)
    communicator.begin(request(1))
    communicator.begin(request(2, (10,)))
    communicator.complete(0, 1)
    assert communicator.lanes.call_of(1) == "Iallreduce"
    communicator.complete(1, 1)
    assert [communicator.lanes.call_of(number) for number in (1, 2)] == ["", ""]


# Failures


@given(COUNTS, SEEDS, st.data())
def test_a_failure_is_reported_once_and_after_every_lane_has_failed(lanes: int, seed: int, data: st.DataObject) -> None:
    draw, communicator = random.Random(seed), Communicator(lanes, seed)
    for number in range(1, 4):
        communicator.begin(request(number))
    for _ in range(draw.randrange(12)):
        if communicator.in_progress:
            communicator.complete(*draw.choice(communicator.in_progress))
        communicator.call_some()
    failing = data.draw(st.sets(st.integers(0, lanes - 1), min_size=1))
    for lane in failing:
        if lane:
            communicator.engines[lane - 1].fail(LOST.rank, LOST.text)
        else:
            communicator.fail(LOST)
    while any(communicator.posted):
        communicator.call_some()
        failed = communicator.first_failure is not None and all(each.failures for each in communicator.engines)
        assert failed or LOST not in communicator.replies
    assert communicator.replies.count(LOST) == 1
    assert communicator.replies[-1] == LOST
    assert all(each.failures == [LOST] for each in communicator.engines)


def test_a_lane_that_ends_amid_a_collective_fails_it() -> None:
    communicator = Communicator(3)
    communicator.begin(request(1))
    communicator.engines[0].end()
    (reply,) = communicator.replies
    assert isinstance(reply, WorkFailed)
    assert "has been closed" in reply.text
    assert communicator.engines[1].failures == [reply]


def test_nothing_is_cut_after_a_lane_has_ended() -> None:
    communicator = Communicator(3)
    communicator.engines[1].end()
    assert communicator.replies == []
    assert communicator.lanes.part_of(request(1, (10,))) is WHOLE
    with pytest.raises(ValueError, match="has been closed"):
        communicator.lanes.part_of(request(1))


# Contributions that come in parts


@given(COUNTS, SEEDS, st.lists(st.integers(0, 1 << 20), min_size=1, max_size=4))
def test_staged_parts_are_legal_and_sum_up_to_the_block(lanes: int, seed: int, counts: list[int]) -> None:
    counts[0] += LEAST_BYTES
    draw, communicator = random.Random(seed), Communicator(lanes)
    communicator.begin(request(1, tuple(counts)))
    staged: list[list[StagedPart]] = [[] for _ in range(lanes)]
    for block, size in enumerate(counts):
        steps = sorted({draw.randrange(size) // CODING_BLOCK * CODING_BLOCK for _ in range(9)} - {0}) if size else []
        for end in (*steps, size):
            own = communicator.lanes.stage(StagedPart(1, block, end))
            staged[0] += [own] if own else []
    for lane, engine in enumerate(communicator.engines, 1):
        staged[lane] = engine.staged
    for lane, parts in enumerate(staged):
        for block, size in enumerate(counts):
            begin, end = LanePart(lane, lanes).of(size)
            sizes = [part.size for part in parts if part.block == block]
            assert sizes == sorted(set(sizes))
            assert all(0 < each <= end - begin and (each % CODING_BLOCK == 0 or each == end - begin) for each in sizes)
            assert (sizes[-1] if sizes else 0) == end - begin


@pytest.mark.parametrize("staged", [StagedPart(1, 1, 64), StagedPart(1, -1, 64), StagedPart(2, 0, 64)])
def test_parts_of_what_is_not_cut_are_the_first_engines(staged: StagedPart) -> None:
    communicator = Communicator(2)
    communicator.begin(request(1))
    communicator.begin(request(2, (100,)))
    assert communicator.lanes.stage(staged) == staged
    assert communicator.engines[0].staged == []


# The end


@given(COUNTS, SEEDS)
def test_the_end_waits_for_all_lanes(lanes: int, seed: int) -> None:
    communicator, ended = Communicator(lanes, seed), []
    communicator.lanes.end(lambda: ended.append([each.ended for each in communicator.engines]))
    communicator.call_all()
    assert ended == [[1] * (lanes - 1)]


def test_the_end_does_not_wait_for_lanes_that_have_ended() -> None:
    communicator, ended = Communicator(3), []
    for engine in communicator.engines:
        engine.end()
    communicator.lanes.end(lambda: ended.append(True))
    assert ended == [True]
    assert [each.ended for each in communicator.engines] == [1, 1]


def test_an_abandoned_communicator_waits_for_nothing() -> None:
    communicator = Communicator(3, seed=0)
    communicator.begin(request(1))
    communicator.lanes.abandon()
    communicator.fail(LOST)
    assert communicator.replies == [LOST]
