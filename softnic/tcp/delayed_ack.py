"""When an acknowledgement may wait for data to carry it (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2).

Rules. An ACK is held only where an answer is likely to carry it, and for `delay_s` at most. It goes at once for every
second frame that may be full-sized, and (arrives.py sees to that) for what is out of order, fills a gap or ends the
stream. What came in a batch is acknowledged to its end, for whoever waits to use its memory again. Likely means: the
program has answered what came before within that time. So a connection's first ACKs are not held, which lets the
peer's slow start run, nor are those of a stream in one direction, which lets the peer's short segments go (Nagle).

A program that was expected to answer and did not costs one delay; each time that happens it takes twice as many
answers in a row until it is expected to again, and half as many after it kept answering.
"""

from __future__ import annotations

NEVER = float("inf")
_SHORT = 128
"""Payload bytes of a frame that cannot be full-sized, however small the peer's MSS."""
_FULL_SIZED = 2
_MOST_NEEDED = 256


class DelayedAck:
    """Of one connection: `at` is when the ACK that is held goes alone, NEVER where none is."""

    __slots__ = ("_answers", "_arrived_at", "_batch", "_delay_s", "_frames", "_needed", "at")

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self.at = NEVER
        self._frames = 0
        """That may be full-sized and are not acknowledged."""
        self._batch = False
        """Two frames or more came at once since the last answer."""
        self._arrived_at = -NEVER
        """When the last data came, until an answer to it goes."""
        self._answers = 0
        """In a row, each within the delay."""
        self._needed = 1
        """Answers in a row after which the next one is expected."""

    def should_delay(self, frames: int, size: int, now: float) -> bool:
        """Data came in order, `size` bytes in so many frames: whether its ACK waits (until `at`)."""
        self._arrived_at = now
        if size >= _SHORT * frames:
            self._frames += frames
            self._batch = self._batch or frames > 1
        if self._answers < self._needed or self._frames >= _FULL_SIZED or self._batch:
            return False
        if self.at == NEVER:
            self.at = now + self._delay_s
        return True

    def on_pure_ack(self) -> None:
        """A bare ACK has gone."""
        self.at = NEVER
        self._frames = 0

    def on_piggybacked(self, now: float) -> None:
        """Data has gone, and with it the ACK."""
        self.at = NEVER
        self._frames = 0
        self._batch = False
        if now - self._arrived_at <= self._delay_s:
            self._answers += 1
            if self._needed > 1 and self._answers >= 2 * self._needed:
                self._needed //= 2
                self._answers = self._needed
        self._arrived_at = -NEVER

    def expired(self) -> None:
        """`at` has come: there was no answer."""
        self.at = NEVER
        self._answers = 0
        self._needed = min(2 * self._needed, _MOST_NEEDED)
