"""Sizes of a connection's buffers: as large as path and peer need, within a budget for all connections.

Receiving is dynamic right-sizing (Fisk and Feng, 2001), as in Linux: the window is four times what the application
consumed in a round trip, because a peer in slow start doubles its rate every round trip and learns of our window one
later; and four times what it consumed more than in the round trip before, because a round may end up to one late. What
waits behind a gap counts as consumed: the application would have it if nothing had been lost. The buffer of an
application that does not read does not grow.

The send buffer doubles, at most once a round trip, when a writer waits although all it wrote is in flight.

Windows count original bytes, so a stream that is compressed 8:1 gets eight times the bandwidth-delay product of its
wire.
"""

from __future__ import annotations

from softnic._fields import Memory, ReceiveTuningFields, SendTuningFields
from softnic.tcp.budget import Budget
from softnic.tcp.rcv import ReceiveState
from softnic.tcp.send_buffer import SendBuffer


class ReceiveTuning(ReceiveTuningFields):
    """State of one connection. From `round_ends` on `round` is to be called with the next segment with data."""

    __slots__ = ("_budget",)

    most: int
    taken: int
    """Bytes taken from the budget."""
    position: int
    consumed: int
    """In the last round."""
    started: float
    rtt_s: float
    round_ends: float

    def __init__(self, most: int, budget: Budget, *, memory: Memory | None = None) -> None:
        del memory
        self.most = most
        self._budget = budget
        self.position = 1

    def round(self, rcv: ReceiveState, now: float, srtt_s: float, echoed_s: float | None) -> None:
        """Tunes the buffer at the end of a round trip.

        `srtt_s` is the connection's own estimate, 0 without one; `echoed_s` is the age of the timestamp echoed by the
        segment (RFC 7323, section 4.2), which is too long if the peer was idle.
        """
        more = self.advance(rcv, rcv.ahead, now, srtt_s, echoed_s)
        if more > 0 and self._budget.take(more):
            self.taken += more
            rcv.grow(more)

    def end(self) -> None:
        """Returns the budget at the end of the connection."""
        self._budget.give(self.taken)
        self.taken = 0


class SendTuning(SendTuningFields):
    """State of one connection."""

    __slots__ = ("_budget",)

    least: int
    """The initial size."""
    most: int
    taken: int
    """Bytes taken from the budget."""
    next: int
    """What the scoreboard's `delivered` is to reach before the buffer may grow again: `snd_una` waits for repairs."""

    def __init__(self, least: int, most: int, budget: Budget, *, memory: Memory | None = None) -> None:
        del memory
        self.least = least
        self.most = most
        self._budget = budget

    def short(self, buffer: SendBuffer, delivered: int, pipe: int) -> None:
        """Doubles the buffer: the writer waits, and all that it wrote is in flight."""
        more = min(buffer.capacity, self.most - buffer.capacity)
        if more > 0 and delivered >= self.next and self._budget.take(more):
            self.taken += more
            self.next = delivered + pipe
            buffer.grow(more)

    def end(self, buffer: SendBuffer) -> None:
        """Restores the initial size of an empty buffer."""
        buffer.set_capacity(self.least)
        self._budget.give(self.taken)
        self.taken = 0
