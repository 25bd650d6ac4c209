"""Loss recovery: from the first loss found until everything in flight at that time is acknowledged.

Fast recovery uses proportional rate reduction (RFC 6937): the window shrinks to `ssthresh` in step with what arrives,
so that sending neither stops nor bursts. After a timeout the window is one frame and grows by slow start.

A needless reduction is undone (Eifel: RFC 3522, 4015): the first acknowledgement after the retransmission echoes a
timestamp from before it, so it answers the original transmission.
"""

from __future__ import annotations

from enum import Enum

from softnic._fields import Memory, RecoveryFields
from softnic.tcp import seq
from softnic.tcp.congestion import Congestion
from softnic.tcp.scoreboard import Scoreboard


class RecoveryState(Enum):
    """As Linux's TCP_CA_Open, TCP_CA_Recovery and TCP_CA_Loss."""

    OPEN = "open"
    RECOVERY = "recovery"
    LOSS = "loss"


_OPEN, _RECOVERY, _LOSS = RecoveryState


class Recovery(RecoveryFields):
    """Positions as in seq.py, sizes in wire bytes."""

    __slots__ = (
        "_arrived",
        "_before",
        "_flight_size",
        "_sent",
        "_stamp",
        "duplicates",
        "recover",
        "state",
    )

    is_open: bool
    """`state` is OPEN: no loss is known."""
    must_send: bool
    """One frame is sent whatever the window says: the first retransmission, or a probe."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.state = RecoveryState.OPEN
        self.is_open = True
        self.recover = 0
        """`snd_nxt` when recovery began."""
        self.duplicates = 0
        """Duplicate acknowledgements in a row from a peer without SACK."""
        self._flight_size = 0
        self._arrived = 0
        """Wire bytes that arrived since recovery began; `_sent`: that were sent since then."""
        self._sent = 0
        self._before: Congestion | None = None
        """State before the reduction; None: there is nothing to undo."""
        self._stamp: int | None = None
        """Timestamp of the first retransmission."""

    def _enter(self, state: RecoveryState) -> None:
        self.state = state
        self.is_open = state is _OPEN

    @property
    def is_fast(self) -> bool:
        """Fast recovery is in progress."""
        return self.state is _RECOVERY

    def begin(self, congestion: Congestion, scoreboard: Scoreboard, nxt: int, now: float) -> None:
        """Starts fast recovery from a loss."""
        self._remember(congestion, scoreboard)
        self._flight_size = max(scoreboard.size, 1)
        self._arrived = self._sent = 0
        congestion.on_loss(scoreboard.size, now)
        self._enter(_RECOVERY)
        self.must_send = True
        self.recover = nxt

    def begin_after_timeout(
        self, congestion: Congestion, scoreboard: Scoreboard, nxt: int, now: float, again: bool
    ) -> None:
        """Starts recovery from a timeout; `again`: the previous timeout brought no acknowledgement."""
        if not again and self.is_open:
            self._remember(congestion, scoreboard)
        congestion.on_timeout(scoreboard.size, now, first=not again and not self.is_fast)
        self._enter(_LOSS)
        self.must_send = True
        self.recover = nxt
        self.duplicates = 0

    def _remember(self, congestion: Congestion, scoreboard: Scoreboard) -> None:
        """Saves the state for `undo`, unless an earlier retransmission is in flight: its answer would be ambiguous."""
        self._before = congestion.snapshot() if scoreboard.sent_once else None
        self._stamp = None

    def force_send(self, must_send: bool = True) -> None:
        """Sets `must_send`."""
        self.must_send = must_send

    def count_duplicates(self, count: int) -> int:
        """Adds duplicate acknowledgements. Returns how many there are in a row."""
        self.duplicates += count
        return self.duplicates

    def reset_duplicates(self) -> None:
        self.duplicates = 0

    def sent(self, wire_bytes: int) -> None:
        """Counts what was sent during recovery."""
        self._sent += wire_bytes
        self.must_send = False

    def sent_again(self, stamp: int | None) -> None:
        """Notes the timestamp of the first retransmission."""
        if self._stamp is None and self._before is not None:
            self._stamp = stamp

    def window(self, arrived: int, advanced: bool, congestion: Congestion, scoreboard: Scoreboard) -> int:
        """Returns the congestion window after an acknowledgement in fast recovery (RFC 6937, section 3.1)."""
        self._arrived += arrived
        target, pipe = congestion.ssthresh, scoreboard.pipe
        if pipe > target:
            allowed = -(-self._arrived * target // self._flight_size) - self._sent
        else:  # slow start towards the target while snd_una advances, what has arrived otherwise
            allowed = max(self._arrived - self._sent, arrived if advanced else 0)
            allowed = min(target - pipe, allowed + congestion.smss if advanced else allowed)
        return max(pipe + max(allowed, 0), congestion.smss)

    def ends(self, una: int) -> bool:
        """Ends recovery if everything that was in flight is acknowledged. Returns whether it did."""
        if self.is_open or una < self.recover:
            return False
        self._enter(_OPEN)
        self._before = None
        return True

    def undo(self, echo: int | None) -> Congestion | None:
        """Handles the first acknowledgement of new data since the retransmission, which echoes timestamp `echo`.

        Returns the congestion state before recovery if the retransmission was needless; recovery is over then.
        """
        stamp, before = self._stamp, self._before
        if stamp is None or before is None:
            return None
        self._stamp = self._before = None
        if echo is None or not seq.after(stamp, echo):
            return None
        self._enter(_OPEN)
        return before
