"""The engine of a rank whose collectives are cut over several queues of its NIC (daemons/softnicd/lanes.py), in one
thread. What a daemon's queues post to each other happens in the next turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from softnic.collectives import CollectiveEngine
from softnic.collectives.collective_op import WHOLE
from softnic.ipc.work_queue import CancelRequest, WorkCompletion, WorkFailed, WorkRequest
from softnicd.communicators import OffloadedLane
from softnicd.lanes import Lanes, Reply

LEAST_BYTES = 8192
"""Of a collective that is cut. Those of worlds are small: some lanes have no part of them."""


class LanedEngine:
    """Engines of one rank, one a lane, with what a job uses of a `CollectiveEngine`."""

    def __init__(self, engines: Sequence[CollectiveEngine]) -> None:
        self._first = engines[0]
        self._further = [
            OffloadedLane(lane, engine, (), {}, partial(self._post_reply, lane), lambda _: None, 0.0)
            for lane, engine in enumerate(engines[1:], 1)
        ]
        self._posted: deque[Callable[[], object]] = deque()
        self._lanes = Lanes([(lane, self._posted.append) for lane in self._further], LEAST_BYTES)
        self._failing: WorkFailed | None = None
        self._now = 0.0
        self.replies: deque[WorkCompletion | WorkFailed] = deque()

    @property
    def space(self) -> int:
        return min(each.space for each in (self._first, *(lane.engine for lane in self._further)))

    def post(self, request: WorkRequest, source: memoryview, result: memoryview) -> None:
        """Start a collective on all lanes, or on the first one alone."""
        if self._first.failure is not None or self._failing is not None:
            return
        part = self._lanes.part_of(request)
        self._first.post(request, source, result, part)
        if part is not WHOLE:
            self._lanes.begin(request, source, result)

    def is_cut(self, number: int) -> bool:
        """Whether a collective was cut, and is not complete."""
        return bool(self._lanes.call_of(number))

    def cancel(self, request: CancelRequest, now: float) -> None:
        """Give up an operation, and with it the communicator."""
        self._first.cancel(request, now)
        if call := self._lanes.call_of(request.number):
            self._first.give_up(request, call, now)

    def advance(self, now: float) -> None:
        """Do all that can be done, between what the node receives and what it sends."""
        self._now = now
        for _ in range(len(self._posted)):
            self._posted.popleft()()
        for lane in self._further:
            if lane.failing is not None:
                lane.engine.fail(now, lane.failing.rank, lane.failing.text)
            lane.engine.advance(now)
            while lane.engine.replies:
                lane.report(lane.engine.replies.popleft())
        if self._failing is not None:
            self._first.fail(now, self._failing.rank, self._failing.text)
        self._first.advance(now)
        self.replies.extend(self._lanes.merge(self._first.replies))

    def next_time(self) -> float | None:
        """Return when `advance` has something to do, if nothing happens before."""
        if self._posted:
            return self._now
        times = [each.next_time() for each in (self._first, *(lane.engine for lane in self._further))]
        return min((time for time in times if time is not None), default=None)

    def leave(self, now: float) -> None:
        """Close all streams: the process has released the engine."""
        self._first.leave(now)
        for lane in self._further:
            lane.engine.leave(now)

    def _post_reply(self, lane: int, reply: Reply) -> None:
        self._posted.append(partial(self._on_reply, lane, reply))

    def _on_reply(self, lane: int, reply: Reply) -> None:
        outcome = self._lanes.on_reply(lane, reply)
        if isinstance(outcome, WorkCompletion):
            self.replies.append(outcome)
        elif outcome is not None:
            self._failing = outcome
