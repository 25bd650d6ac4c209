"""A connection on which nothing moves gives memory back: that of its empty buffers, and what they had grown by.

Not at once, as the next message would have to take it again: `rest_after_s` after the last segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection


def rests_later(c: Connection, now: float) -> None:
    """Something moved: `rest` is to be called some time after the last of it."""
    c.rest_at = now + c.tcp.config.rest_after_s
    if c.rest_at < c.scheduled_at:
        c.tcp.schedule(c)


def rest(c: Connection, now: float) -> None:
    """`rest_at` has come: gives memory back, if nothing has moved of late."""
    c.rest_at = c.NEVER
    moved_at = max(c.last_heard, c.last_sent_at)
    if now < moved_at + c.tcp.config.rest_after_s:
        rests_later(c, moved_at)
        return
    if not c.rcv.unread:
        c.rcv.rest()
    buffer = c.snd.buffer
    if buffer.start == buffer.end:
        buffer.rest()
        c.send_tuning.end(buffer)
