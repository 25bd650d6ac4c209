"""The further lanes of a communicator: an engine in each other queue of the NIC, for its part of large collectives.

The queue of the first lane has the work queue. It posts the parts of a collective to the other queues (queue.py),
which post back what becomes of them. The process gets one completion, when all parts are complete; and one failure,
when every lane has failed, and so has given its memory back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from softnic.collectives import nbytes
from softnic.collectives.collective_op import WHOLE, LanePart
from softnic.collectives.operations import element_type
from softnic.collectives.schedule import EXCHANGES
from softnic.collectives.stream import CODING_BLOCK
from softnic.ipc.work_queue import StagedPart, WorkCompletion, WorkFailed, WorkRequest

LEAST_BYTES = 256 << 10
"""Of a collective that is cut. All ranks know its size, unless it is an exchange, which is never cut."""

Reply = WorkCompletion | WorkFailed | None
"""None: the lane has ended, without an error."""
Post = Callable[[Callable[[], object]], None]
"""Has a queue call a function between two turns."""


class LaneEngine(Protocol):
    """The engine of a lane, in its queue (collectives.py)."""

    def begin(self, request: WorkRequest, source: memoryview, result: memoryview, part: LanePart) -> None:
        """Execute this part of a collective."""

    def stage(self, part: StagedPart) -> None:
        """Note that a part of a contribution is there."""

    def start_rank(self, rank: int, now: float) -> None:
        """Exchange blocks with a rank that was added."""

    def fail(self, rank: int, text: str) -> None: ...

    def end(self) -> None:
        """Close the streams."""


class CutCollective:
    """A collective whose parts are in progress."""

    __slots__ = ("left", "number", "rate", "request", "staged")

    def __init__(self, request: WorkRequest, number: int, parts: int) -> None:
        self.request = request
        self.number = number
        """On the further lanes."""
        self.left = parts
        """Parts that are not complete."""
        self.rate = 0.0
        """Of those that are: the sum of the lanes' rates."""
        self.staged: dict[tuple[int, int], int] = {}
        """Bytes of the contribution that are there, by lane and block."""


class Lanes:
    """The lanes of a communicator, in the queue of the first one. `others` has, of each further lane, its engine and
    what posts to its queue. Collectives of `least_bytes` are cut."""

    def __init__(self, others: Sequence[tuple[LaneEngine, Post]], least_bytes: int = LEAST_BYTES) -> None:
        self._least_bytes = least_bytes
        self._others = others
        self._count = 1 + len(others)
        self._live = set(range(1, self._count))
        """Lanes that have not failed or ended."""
        self._open = set(self._live)
        """Lanes that have not ended."""
        self._cut: dict[int, CutCollective] = {}
        """By number in the work queue."""
        self._by_number: dict[int, CutCollective] = {}
        """By number on the further lanes."""
        self._posted = 0
        self._failure: WorkFailed | None = None
        """To be reported when no lane is left."""
        self._has_failed = False
        self._when_ended: Callable[[], object] | None = None

    @property
    def engines(self) -> Sequence[LaneEngine]:
        """Those of the further lanes."""
        return [engine for engine, _ in self._others]

    def start_rank(self, rank: int, now: float) -> None:
        """Exchange blocks with a rank that was added to all lanes."""
        for engine, post in self._others:
            post(partial(engine.start_rank, rank, now))

    # Requests

    def part_of(self, request: WorkRequest) -> LanePart:
        """Return the first lane's part of a collective. Raises ValueError."""
        if request.collective in EXCHANGES or nbytes(request) < self._least_bytes:
            return WHOLE
        if len(self._live) < len(self._others):
            raise ValueError("a connection of the communicator has been closed")
        return LanePart(0, self._count)

    def begin(self, request: WorkRequest, source: memoryview, result: memoryview) -> None:
        """Have the further lanes execute their parts of a collective."""
        self._posted += 1
        cut = CutCollective(request, self._posted, self._count)
        self._cut[request.number] = self._by_number[self._posted] = cut
        theirs = msgspec.structs.replace(request, number=self._posted)
        for lane, (engine, post) in enumerate(self._others, 1):
            post(partial(engine.begin, theirs, source, result, LanePart(lane, self._count)))

    def stage(self, staged: StagedPart) -> StagedPart | None:
        """Tell the further lanes what is there of a contribution. Return what concerns the first lane, if anything."""
        cut = self._cut.get(staged.number)
        if cut is None or not 0 <= staged.block < len(cut.request.counts):
            return staged
        size = cut.request.counts[staged.block] * element_type(cut.request.dtype).itemsize
        first = None
        for lane in range(self._count):
            begin, end = LanePart(lane, self._count).of(size)
            there = min(staged.size, end) - begin
            if there < end - begin:
                there -= there % CODING_BLOCK
            if there <= cut.staged.get((lane, staged.block), 0):
                continue
            cut.staged[lane, staged.block] = there
            if lane:
                engine, post = self._others[lane - 1]
                post(partial(engine.stage, StagedPart(cut.number, staged.block, there)))
            else:
                first = StagedPart(staged.number, staged.block, there)
        return first

    def call_of(self, number: int) -> str:
        """Return the call of a collective that is cut and not complete; empty: this one is not."""
        cut = self._cut.get(number)
        return "" if cut is None else cut.request.call

    # Outcomes

    def merge(self, replies: deque[WorkCompletion | WorkFailed]) -> list[WorkCompletion | WorkFailed]:
        """Take the replies of the first lane. Return those that the process is to get now."""
        ready: list[WorkCompletion | WorkFailed] = []
        while replies:
            reply = replies.popleft()
            if isinstance(reply, WorkFailed):
                self._fail(reply)
            elif (done := self._completed(self._cut.get(reply.number), reply)) is not None:
                ready.append(done)
        if self._failure is not None and not self._live:
            ready.append(self._failure)
            self._failure = None
        return ready

    def _fail(self, why: WorkFailed) -> None:
        self._failure, self._has_failed = why, True
        self._cut.clear()
        self._by_number.clear()
        for lane in sorted(self._live):
            engine, post = self._others[lane - 1]
            post(partial(engine.fail, why.rank, why.text))

    def _completed(self, cut: CutCollective | None, part: WorkCompletion) -> WorkCompletion | None:
        """Count a part as complete. Return the completion of all, if it was the last, or the whole."""
        if cut is None:
            return part
        cut.left -= 1
        cut.rate += part.rate
        if cut.left:
            return None
        del self._cut[cut.request.number], self._by_number[cut.number]
        return WorkCompletion(cut.request.number, cut.rate)

    def on_reply(self, lane: int, reply: Reply) -> Reply:
        """Take what a further lane reports. Return the completion of a collective, or why the communicator fails."""
        if isinstance(reply, WorkCompletion):
            cut = self._by_number.get(reply.number)
            return None if cut is None else self._completed(cut, reply)
        self._live.discard(lane)
        if reply is None:
            self._open.discard(lane)
            if not self._open and self._when_ended is not None:
                self._when_ended()
        if self._has_failed or (reply is None and not self._cut):
            return None
        return reply or WorkFailed(-1, "a connection of the communicator has been closed")

    def end(self, then: Callable[[], object]) -> None:
        """End all lanes; `then` is called when they have given their memory back."""
        self._when_ended = then
        for lane in sorted(self._open):
            engine, post = self._others[lane - 1]
            post(engine.end)
        if not self._open:
            then()

    def abandon(self) -> None:
        """The NIC stops, and all its queues: nothing is waited for."""
        self._live.clear()
        self._open.clear()
