"""Idle connections return memory: that of their empty buffers, and the growth of their send buffers.

This happens `trim_after_s` after the last segment, not at once: the next message would have to allocate it again.
"""

from __future__ import annotations

from softnic.tcp.flow import NEVER, Flow


def schedule_trim(c: Flow, now: float) -> None:
    """Schedules `trim_buffers` for some time after `now`, when the connection was last active."""
    c.trim_at = now + c.tcp.config.trim_after_s
    if c.trim_at < c.scheduled_at:
        c.tcp.schedule(c)


def cancel_trim(c: Flow) -> None:
    c.trim_at = NEVER


def trim_buffers(c: Flow, now: float) -> None:
    """Returns memory if the connection has been idle long enough; otherwise postpones that."""
    c.trim_at = NEVER
    active_at = max(c.last_heard, c.last_sent_at)
    if now < active_at + c.tcp.config.trim_after_s:
        schedule_trim(c, active_at)
        return
    buffer = c.snd.buffer
    if buffer.start == buffer.end:
        buffer.release_memory()
        c.send_tuning.end(buffer)
