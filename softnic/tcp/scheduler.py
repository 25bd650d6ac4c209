"""Whose turn it is to send, and whose timers are due, among the flows of one node.

Turns are counted in wire bytes (deficit round robin: Shreedhar and Varghese, 1995), so that each flow gets the same
share of the link although a super-segment of one may become a hundred times as many frames as another's.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sized

from softnic.tcp.flow import NEVER, TURN_BYTES, Flow

_LEAST_TURN_BYTES = 16 << 10
"""A smaller rest of a turn is not worth a segment: it is added to the next turn."""
_SPARE_TIMERS = 64
_LOOPBACK_BYTES = 1 << 20
"""Of frames that one flow to the node itself sends in one turn."""


class Scheduler:
    """`ip` is the node's address: flows to it have a ring of their own, because they wait for no link.

    `flows` is the table of flows; `output(flow, now, frames)` sends what is most urgent for one and returns the wire
    bytes, as output.py's.
    """

    def __init__(self, ip: int, flows: Sized, output: Callable[[Flow, float, int], int]) -> None:
        self._ip = ip
        self._flows = flows
        self._output = output
        self._ready: deque[Flow] = deque()
        self._ready_loopback: deque[Flow] = deque()
        self.take_timer: Callable[[Flow], bool] = lambda _flow: False
        """Has the timers of a flow run elsewhere; returns whether it does."""
        self.run_others: Callable[[float], object] = lambda _now: None
        """Runs those timers."""
        self._timers: list[tuple[float, int, Flow]] = []
        self._order = itertools.count()

    # Sending

    def wake(self, flow: Flow) -> None:
        """Queues a flow that may have something to send."""
        if not flow.queued:
            flow.queued = True
            (self._ready_loopback if flow.peer[0] == self._ip else self._ready).append(flow)

    def adopt(self, flow: Flow) -> None:
        """Queues a flow that another owner has marked as queued."""
        flow.queued = False
        self.wake(flow)

    def take_ready(self) -> list[Flow]:
        """Takes all flows that may have something to send; they stay marked as queued."""
        flows = [*self._ready_loopback, *self._ready]
        self._ready_loopback.clear()
        self._ready.clear()
        return flows

    @property
    def ready(self) -> Iterable[Flow]:
        """The flows that may have something to send."""
        return itertools.chain(self._ready_loopback, self._ready)

    @property
    def wants_output(self) -> bool:
        return bool(self._ready)

    @property
    def wants_output_loopback(self) -> bool:
        return bool(self._ready_loopback)

    def output(self, now: float, tx_space: int) -> int:
        """Lets flows send by turns up to about `tx_space` bytes of frames. Returns the wire bytes."""
        left = tx_space
        while self._ready and left > 0:
            left -= self._serve(self._ready, left, now)
        return tx_space - left

    def output_loopback(self, now: float) -> None:
        """Lets each flow to the node itself send one super-segment."""
        for _ in range(len(self._ready_loopback)):
            self._serve(self._ready_loopback, _LOOPBACK_BYTES, now)

    def _serve(self, ready: deque[Flow], tx_space: int, now: float) -> int:
        flow = ready[0]
        if len(ready) > 1 and tx_space > flow.turn_bytes:
            tx_space = flow.turn_bytes
        sent, goes_on = self._send(flow, tx_space, now)
        if not goes_on:
            ready.popleft()
            if flow.queued:
                ready.append(flow)
        return sent

    def _send(self, flow: Flow, tx_space: int, now: float) -> tuple[int, bool]:
        """Lets a flow send once. Returns the wire bytes, and whether its turn goes on."""
        sent = self._output(flow, now, tx_space // flow.congestion.smss or 1)
        flow.turn_bytes -= sent
        if not (sent and flow.has_output):
            flow.queued, flow.turn_bytes = False, TURN_BYTES
            return sent, False
        if flow.turn_bytes >= _LEAST_TURN_BYTES:
            return sent, True
        flow.turn_bytes = max(0, flow.turn_bytes + TURN_BYTES)
        return sent, False

    def take_turn(self, flow: Flow, tx_space: int, now: float) -> bool:
        """Lets a flow send that waits elsewhere, until its turn or the space of the link ends.

        Returns whether its turn goes on. A flow that has more to send is still marked as queued.
        """
        goes_on = True
        while goes_on and tx_space > 0:
            sent, goes_on = self._send(flow, min(tx_space, flow.turn_bytes), now)
            tx_space -= sent
        return goes_on

    # Timers

    def schedule(self, flow: Flow) -> None:
        """Ensures that `due` returns the flow by its earliest deadline.

        A deadline that was postponed is rechecked when it expires.
        """
        if not self.take_timer(flow):
            self.schedule_here(flow)

    def schedule_here(self, flow: Flow) -> None:
        """As `schedule`, for a flow whose timers run here now."""
        deadline = flow.deadline
        if deadline < flow.scheduled_at:
            flow.scheduled_at = deadline
            self.adopt_timer(flow)

    def adopt_timer(self, flow: Flow) -> None:
        """Takes over the check of a flow's timers at `scheduled_at`."""
        if flow.scheduled_at < NEVER:
            heapq.heappush(self._timers, (flow.scheduled_at, next(self._order), flow))
            if len(self._timers) > 2 * len(self._flows) + _SPARE_TIMERS:  # most are superseded
                self._timers = [timer for timer in self._timers if timer[0] == timer[2].scheduled_at]
                heapq.heapify(self._timers)

    def due(self, now: float) -> Flow | None:
        """Returns the next flow whose timers are to be checked, and `schedule`d again."""
        while self._timers and self._timers[0][0] <= now:
            at, _, flow = heapq.heappop(self._timers)
            if at == flow.scheduled_at:  # else superseded by an earlier one
                flow.scheduled_at = NEVER
                return flow
        return None

    def next_time(self) -> float | None:
        """When `due` is to be called next; may be early, never late."""
        timers = self._timers
        while timers and timers[0][0] != timers[0][2].scheduled_at:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def forget(self, flow: Flow) -> None:
        """The flow has ended: its timers no longer count."""
        flow.scheduled_at = NEVER
