"""Delayed acknowledgements (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2).

An ACK is delayed only if a reply is likely to carry it, and for `delay_s` at most. It is sent at once for every second
frame that may be full-sized and (input.py) for data that is out of order, fills a gap or ends the stream. A batch is
acknowledged to its end, for senders that wait to reuse its memory. A reply is likely if the application has replied to
earlier data within that time. So a connection's first ACKs are not delayed, which lets the peer's slow start run, nor
are those of a one-way stream, which lets the peer's short segments go (Nagle).

An expected reply that does not come costs one delay. Each time it takes twice as many replies in a row until the next
one is expected, and half as many after the application has kept replying.

The decisions are C (native/tcp/flow_timers.c).
"""

from __future__ import annotations

from softnic._fields import DelayedAckFields, Memory

NEVER = float("inf")
_NEVER_LIKELY = 1 << 60
"""More replies in a row than any application gives."""


class DelayedAck(DelayedAckFields):
    """State of one connection."""

    __slots__ = ()

    delay_s: float
    at: float
    """When the delayed ACK is sent alone; NEVER: there is none."""
    frames: int
    """Unacknowledged frames that may be full-sized."""
    batch: bool
    """Two frames or more arrived at once since the last reply."""
    arrived_at: float
    """When the last data without a reply arrived."""
    answers: int
    """Replies in a row, each within the delay."""
    needed: int
    """Replies in a row after which the next one is expected."""

    def __init__(self, delay_s: float, *, memory: Memory | None = None) -> None:
        del memory
        self.delay_s = delay_s
        self.at = NEVER
        self.arrived_at = -NEVER
        self.needed = 1

    @property
    def quick(self) -> bool:
        """No ACK is delayed (TCP_QUICKACK)."""
        return self.needed >= _NEVER_LIKELY

    def set_quick(self, quick: bool) -> None:
        """Ends delays, or begins anew with them."""
        if quick != self.quick:
            self.needed = _NEVER_LIKELY if quick else 1
            self.answers = 0
