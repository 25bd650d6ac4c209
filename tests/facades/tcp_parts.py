"""What the parts of TCP do, by the field's names: zero-copy sends, delayed ACKs, the scoreboard."""

from __future__ import annotations

from softnic.tcp.connection import Connection
from softnic.tcp.delayed_ack import DelayedAck
from softnic.tcp.scoreboard import Ack, Scoreboard, SentRange
from softnic.tcp.send_buffer import SendBuffer

__all__ = [
    "completed_bytes",
    "connection_send_zerocopy",
    "copy_out",
    "mark_head_lost",
    "mark_lost",
    "never_retransmitted",
    "on_piggybacked",
    "on_pure_ack",
    "on_sack_reneging",
    "outstanding_bytes",
    "send_zerocopy",
    "should_delay",
    "undo_lost_marks",
    "zerocopy_len",
]


def send_zerocopy(buffer: SendBuffer, memory: memoryview, offset: int, size: int) -> None:
    """Append bytes to a send buffer that stay where they are."""
    buffer.send_zerocopy(memory, offset, size)


def connection_send_zerocopy(connection: Connection, memory: memoryview, offset: int, size: int) -> bool:
    """Send bytes that stay where they are; return whether the connection may be written to."""
    return connection.send_zerocopy(memory, offset, size)


def zerocopy_len(buffer: SendBuffer, size: int) -> int:
    """Return how many of `size` bytes may be sent next without a copy."""
    return buffer.zerocopy_len(size)


def copy_out(buffer: SendBuffer) -> None:
    """Copy what was sent without a copy and is not complete."""
    buffer.zerocopy.copy_out()


def completed_bytes(buffer: SendBuffer) -> int:
    """Return the bytes of zero-copy sends that their owner may change again."""
    return buffer.zerocopy.completed_bytes


def outstanding_bytes(buffer: SendBuffer) -> int:
    """Return the bytes of zero-copy sends that are not complete."""
    return buffer.zerocopy.outstanding


def should_delay(rule: DelayedAck, frames: int, size: int, now: float) -> bool:
    """Return whether an ACK for these numbers of frames and bytes is to wait."""
    return rule.should_delay(frames, size, now)


def on_piggybacked(rule: DelayedAck, now: float) -> None:
    """Tell the rule that data has carried an ACK."""
    rule.on_piggybacked(now)


def on_pure_ack(rule: DelayedAck) -> None:
    """Tell the rule that an ACK has left without data."""
    rule.on_pure_ack()


def mark_lost(scoreboard: Scoreboard, sent: SentRange) -> None:
    """Mark a range as lost."""
    scoreboard.mark_lost(sent)


def mark_head_lost(scoreboard: Scoreboard, wire_bytes: int) -> None:
    """Mark the first bytes in flight as lost."""
    scoreboard.mark_head_lost(wire_bytes)


def undo_lost_marks(scoreboard: Scoreboard) -> None:
    """Take back that ranges are lost."""
    scoreboard.undo_lost_marks()


def on_sack_reneging(scoreboard: Scoreboard) -> None:
    """Forget what SACK blocks have reported."""
    scoreboard.on_sack_reneging()


def never_retransmitted(ack: Ack) -> bool:
    """Return whether what an ACK acknowledges was sent only once."""
    return ack.never_retransmitted
