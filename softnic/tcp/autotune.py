"""How large a connection's buffers are: as large as the path and the other side use, within a budget for all.

Receiving is dynamic right-sizing (Fisk and Feng, 2001), as Linux does it: what the program has taken of the stream in a
round trip says what the peer needs; four times that is the window, because a peer in slow start doubles its rate every
round trip and hears of our window one later. A program that does not read takes nothing, so its buffer does not grow.

Sending: a writer that waits although all it wrote is on its way has too small a buffer for this path. It doubles, once
a round trip at most.

Windows count original bytes, so a stream that is compressed 8:1 needs, and gets, eight times the bandwidth-delay
product of its wire.
"""

from __future__ import annotations

from softnic.tcp.budget import Budget
from softnic.tcp.rcv import Receive
from softnic.tcp.send_buffer import SendBuffer

_TICK_S = 0.001
"""Round trips are taken for no shorter: the timestamp clock sees no less, and rounds cost time."""
_ROUNDS = 4
_SLOW = 1 / 8


class ReceiveTuning:
    """Of one connection. `round_ends` is when `round` is to be called with the next segment that brings data."""

    __slots__ = ("_budget", "_most", "_position", "_rtt_s", "_started", "_taken", "round_ends")

    def __init__(self, most: int, budget: Budget) -> None:
        self._most = most
        self._budget = budget
        self._taken = 0
        """Of the budget."""
        self._position = 1
        self._started = 0.0
        self._rtt_s = 0.0
        self.round_ends = 0.0

    def round(self, rcv: Receive, now: float, srtt_s: float, echoed_s: float | None) -> None:
        """A round trip is over. `srtt_s` is the connection's own estimate, 0 without one; `echoed_s` is how old the
        timestamp is that the segment echoes (RFC 7323, section 4.2), which is too much where the peer had been idle."""
        self._sample(srtt_s, echoed_s)
        taken = rcv.rcv_nxt - rcv.unread - self._position
        elapsed = now - self._started
        if elapsed > 0 and self._started:
            self._grow(rcv, int(_ROUNDS * taken * min(1.0, self._rtt_s / elapsed)))
        self._position += taken
        self._started = now
        self.round_ends = now + self._rtt_s

    def _sample(self, srtt_s: float, echoed_s: float | None) -> None:
        sample = max(_TICK_S, srtt_s if echoed_s is None else echoed_s + _TICK_S)
        if self._rtt_s == 0.0:
            self._rtt_s = max(_TICK_S, srtt_s) if srtt_s else sample
        elif sample < self._rtt_s:
            self._rtt_s = sample
        else:
            self._rtt_s += _SLOW * (sample - self._rtt_s)

    def _grow(self, rcv: Receive, wanted: int) -> None:
        more = min(wanted, self._most, rcv.largest) - rcv.capacity
        if more > 0 and self._budget.take(more):
            self._taken += more
            rcv.grow(more)

    def end(self) -> None:
        """The connection is over."""
        self._budget.give(self._taken)
        self._taken = 0


class SendTuning:
    """Of one connection."""

    __slots__ = ("_budget", "_least", "_most", "_next", "_taken")

    def __init__(self, least: int, most: int, budget: Budget) -> None:
        self._least = least
        self._most = most
        self._budget = budget
        self._taken = 0
        """Of the budget."""
        self._next = 0
        """Position that must be acknowledged before the buffer may grow again."""

    def short(self, buffer: SendBuffer, snd_una: int, snd_nxt: int) -> None:
        """The writer waits, and all that it wrote is on its way."""
        more = min(buffer.capacity, self._most - buffer.capacity)
        if more > 0 and snd_una >= self._next and self._budget.take(more):
            self._taken += more
            self._next = snd_nxt
            buffer.grow(more)

    def end(self, buffer: SendBuffer) -> None:
        """Nothing is being sent: the buffer is as it was at first."""
        buffer.set_capacity(self._least)
        self._budget.give(self._taken)
        self._taken = 0
