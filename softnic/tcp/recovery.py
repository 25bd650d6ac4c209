"""Loss recovery: from the first loss found until everything in flight at that time is acknowledged.

Fast recovery uses proportional rate reduction (RFC 6937): the window shrinks to `ssthresh` in step with what arrives,
so that sending neither stops nor bursts. After a timeout the window is one frame and grows by slow start.

A needless reduction is undone (Eifel: RFC 3522, 4015): the first acknowledgement after the retransmission echoes a
timestamp from before it, so it answers the original transmission. The steps are C (native/tcp/recovery.c).
"""

from __future__ import annotations

from enum import IntEnum

from softnic._fields import Memory, RecoveryFields


class RecoveryState(IntEnum):
    """As SN_RECOVERY_OPEN and so on in native/tcp/flow.h, and Linux's TCP_CA_Open, TCP_CA_Recovery and TCP_CA_Loss."""

    OPEN = 0
    RECOVERY = 1
    LOSS = 2


class Recovery(RecoveryFields):
    """Positions as in seq.py, sizes in wire bytes."""

    __slots__ = ()

    state: int
    """A `RecoveryState`."""
    is_open: bool
    """`state` is OPEN: no loss is known."""
    must_send: bool
    """One frame is sent whatever the window says: the first retransmission, or a probe."""
    recover: int
    """`snd_nxt` when recovery began."""
    duplicates: int
    """Duplicate acknowledgements in a row from a peer without SACK."""
    flight_size: int
    """Unacknowledged when recovery began."""
    arrived: int
    """Since recovery began; `sent_bytes`: that were sent since then."""
    sent_bytes: int
    may_undo: bool
    """The state before the reduction is kept."""
    stamp: int | None
    """Timestamp of the first retransmission."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.is_open = True
        self.stamp = None

    @property
    def is_fast(self) -> bool:
        """Fast recovery is in progress."""
        return self.state == RecoveryState.RECOVERY

    def force_send(self, must_send: bool = True) -> None:
        """Sets `must_send`."""
        self.must_send = must_send

    def forget(self) -> None:
        """Undoes nothing any more: another congestion control continues."""
        self.may_undo = False

    def count_duplicates(self, count: int) -> int:
        """Adds duplicate acknowledgements. Returns how many there are in a row."""
        self.duplicates += count
        return self.duplicates

    def reset_duplicates(self) -> None:
        self.duplicates = 0
