"""Loss recovery: from the first loss found until all that was on its way then is acknowledged.

How much may be sent meanwhile is decided by proportional rate reduction (RFC 6937): the window shrinks to `ssthresh`
in step with what arrives, so that sending neither stops nor bursts. After a timeout the window is one frame and grows
by slow start; that too goes on until all is acknowledged.

A reduction that was for nothing is undone (Eifel: RFC 3522, 4015): the first acknowledgement after the retransmission
echoes a timestamp from before it, so it answers the first sending.
"""

from __future__ import annotations

from softnic.tcp import seq
from softnic.tcp.congestion import Congestion
from softnic.tcp.scoreboard import Scoreboard


class Recovery:
    """Positions as in seq.py, sizes in wire bytes."""

    __slots__ = (
        "_arrived",
        "_before",
        "_flight_size",
        "_sent",
        "_stamp",
        "duplicates",
        "must_send",
        "on",
        "open",
        "recover",
    )

    def __init__(self) -> None:
        self.open = True
        """Nothing is known to be lost."""
        self.on = False
        """Fast recovery; neither this nor `open`: recovery after a timeout."""
        self.recover = 0
        """`snd_nxt` when it began."""
        self.must_send = False
        """One frame goes whatever the window says: the first retransmission, or a probe."""
        self.duplicates = 0
        """Duplicate acknowledgements in a row, of a peer that has no SACK."""
        self._flight_size = 0
        self._arrived = 0
        """Since it began; and what was sent since then."""
        self._sent = 0
        self._before: Congestion | None = None
        """As it was before the reduction; None: there is nothing to undo."""
        self._stamp: int | None = None
        """Timestamp of the first retransmission."""

    def begin(self, congestion: Congestion, scoreboard: Scoreboard, nxt: int, now: float) -> None:
        """Something is lost."""
        self._remember(congestion, scoreboard)
        self._flight_size = max(scoreboard.size, 1)
        self._arrived = self._sent = 0
        congestion.on_loss(scoreboard.size, now)
        self.open = False
        self.on = self.must_send = True
        self.recover = nxt

    def begin_after_timeout(
        self, congestion: Congestion, scoreboard: Scoreboard, nxt: int, now: float, again: bool
    ) -> None:
        """`again`: the timer has expired before without an acknowledgement since."""
        if not again and self.open:
            self._remember(congestion, scoreboard)
        congestion.on_timeout(scoreboard.size, now, first=not again and not self.on)
        self.open = self.on = False
        self.must_send = True
        self.recover = nxt
        self.duplicates = 0

    def _remember(self, congestion: Congestion, scoreboard: Scoreboard) -> None:
        """For `undo`: not where an earlier retransmission is on its way, whose answer would be taken for one to what
        is sent first."""
        self._before = congestion.snapshot() if scoreboard.sent_once else None
        self._stamp = None

    def sent(self, wire_bytes: int) -> None:
        self._sent += wire_bytes
        self.must_send = False

    def sent_again(self, stamp: int | None) -> None:
        """A retransmission left; `stamp` is its timestamp."""
        if self._stamp is None and self._before is not None:
            self._stamp = stamp

    def window(self, arrived: int, advanced: bool, congestion: Congestion, scoreboard: Scoreboard) -> int:
        """The congestion window after an acknowledgement in fast recovery (RFC 6937, section 3.1)."""
        self._arrived += arrived
        target, pipe = congestion.ssthresh, scoreboard.pipe
        if pipe > target:
            allowed = -(-self._arrived * target // self._flight_size) - self._sent
        else:  # slow start towards the target where it goes well, what has arrived where it does not
            allowed = max(self._arrived - self._sent, arrived if advanced else 0)
            allowed = min(target - pipe, allowed + congestion.smss if advanced else allowed)
        return max(pipe + max(allowed, 0), congestion.smss)

    def ends(self, una: int) -> bool:
        """Whether all that was on its way is acknowledged; then it is over."""
        if self.open or una < self.recover:
            return False
        self.open, self.on = True, False
        self._before = None
        return True

    def undo(self, echo: int | None) -> Congestion | None:
        """The first acknowledgement of something new since the retransmission, which echoes timestamp `echo`. What
        congestion control was before, if the retransmission was for nothing; recovery is over then."""
        stamp, before = self._stamp, self._before
        if stamp is None or before is None:
            return None
        self._stamp = self._before = None
        if echo is None or not seq.after(stamp, echo):
            return None
        self.open, self.on = True, False
        return before
