"""A connection on which nothing moves gives memory back: that of its empty buffers, and what they had grown by.

Not at once, as the next message would have to take it again: `trim_after_s` after the last segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection


def schedule_trim(c: Connection, now: float) -> None:
    """Something moved: `rest` is to be called some time after the last of it."""
    c.trim_at = now + c.tcp.config.trim_after_s
    if c.trim_at < c.scheduled_at:
        c.tcp.schedule(c)


def trim_buffers(c: Connection, now: float) -> None:
    """`trim_at` has come: gives memory back, if nothing has moved of late."""
    c.trim_at = c.NEVER
    moved_at = max(c.last_heard, c.last_sent_at)
    if now < moved_at + c.tcp.config.trim_after_s:
        schedule_trim(c, moved_at)
        return
    if not c.rcv.unread:
        c.rcv.release_memory()
    buffer = c.snd.buffer
    if buffer.start == buffer.end:
        buffer.release_memory()
        c.send_tuning.end(buffer)
