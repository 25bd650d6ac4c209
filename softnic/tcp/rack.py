"""Loss detection: RACK, and tail loss probes (RFC 8985).

A range is lost if one sent later has arrived and a reordering window has passed since it should have arrived too. The
window is zero until three segments have arrived out of order or recovery is in progress. Where reordering has been seen
it is a quarter of the minimum round trip, extended by as much for each round trip with a D-SACK (RFC 2883). Frames of
one range left at one time, so their order in the stream decides.

Departures. Segments are counted by wire bytes. A probe waits 10 ms at least, because each timer costs a turn of
the daemon. The minimum round trip is that of the last one or two minutes.

The arithmetic of each acknowledgement is C (native/tcp/flow_growth.c).
"""

from __future__ import annotations

from softnic._fields import Memory, MinimumRttFields, RackFields
from softnic.tcp.scoreboard import SACKED, Scoreboard

DUPLICATE_THRESHOLD = 3
MAX_PEER_ACK_DELAY_S = 0.2
"""Delay of other peers (RFC 8985, section 7.2); peers with a softnic NIC use `TcpConfig.ack_delay_s`."""
_ENOUGH = 2 * DUPLICATE_THRESHOLD - 1
"""Half segments: a share of a range's wire bytes may be rounded."""
_PERSIST = 16
"""Recoveries after which the extension of the window ends."""
_NEVER = float("inf")


class MinimumRtt(MinimumRttFields):
    """Minimum of the samples of the last one or two minutes."""

    __slots__ = ()

    before: float
    """The minimum until `since`."""
    now: float
    since: float

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.before = self.now = _NEVER
        self.since = -_NEVER

    @property
    def least(self) -> float:
        """Infinite before the first sample."""
        return min(self.before, self.now)


class Rack(RackFields):
    """Positions as in seq.py, times in seconds."""

    __slots__ = (
        "_dsack_round",
        "_multiplier",
        "_persist",
        "minimum",
        "probe_dsacked",
        "probe_repeats",
    )

    sent_at: float
    """When the range was sent that was sent last of those that have arrived (RACK.xmit_ts)."""
    end: int
    """End of that range (RACK.end_seq)."""
    rtt: float
    """Round trip of that range (RACK.rtt)."""
    peer_ack_delay_s: float
    """How long the peer may delay the ACK of a single segment."""
    reordering_seen: bool
    probe_end: int | None
    """End of the unacknowledged tail loss probe (TLP.end_seq); None: there is none."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.sent_at = -_NEVER
        self.minimum = MinimumRtt(memory=self.memory)
        self.peer_ack_delay_s = MAX_PEER_ACK_DELAY_S
        self.probe_end = None
        self._multiplier = 1
        self._persist = 0
        self._dsack_round: int | None = None
        self.probe_repeats = False
        """The probe is a retransmission."""
        self.probe_dsacked = False

    def duplicate(self, una: int, nxt: int) -> None:
        """Extends the reordering window after a D-SACK: it was too short (section 6.2, step 4)."""
        if self.probe_end is not None and self.probe_repeats:
            self.probe_dsacked = True
            return
        if self._dsack_round is None or una >= self._dsack_round:
            self._dsack_round = nxt
            self._multiplier += 1
            self._persist = _PERSIST

    def recovered(self) -> None:
        """Counts a recovery towards the end of the extension."""
        self._persist -= 1
        if self._persist <= 0:
            self._multiplier = 1

    def window(self, scoreboard: Scoreboard, recovering: bool, smss: int, srtt: float) -> float:
        """Returns the reordering window in seconds (section 6.2, step 4)."""
        if not self.reordering_seen and (recovering or 2 * scoreboard.sacked >= _ENOUGH * smss):
            return 0.0
        least = self.minimum.least
        return min(self._multiplier * least / 4, srtt) if least < _NEVER else srtt

    def detect(self, scoreboard: Scoreboard, window: float, now: float) -> float:
        """Marks lost ranges (section 6.2, step 5). Returns when the others will be lost unless they arrive."""
        return scoreboard.detect(self.sent_at, self.end, self.rtt + window, now)

    def timed_out(self, scoreboard: Scoreboard, now: float, window: float) -> None:
        """Marks the first range, and others as old, as lost after a retransmission timeout (section 6.3)."""
        if scoreboard and scoreboard.ranges[0].state == SACKED:
            scoreboard.on_sack_reneging()
        scoreboard.time_out(self.rtt, window, now)
        self.probe_end = None

    # Tail loss probes

    def probed(self, end: int, repeats: bool) -> None:
        """Records a probe that ends at `end`; `repeats`: it is a retransmission."""
        self.probe_end, self.probe_repeats, self.probe_dsacked = end, repeats, False

    def cancel_probe(self) -> None:
        """A recovery has begun, which makes the answer to a probe meaningless."""
        self.probe_end = None

    def set_peer_ack_delay(self, delay_s: float) -> None:
        self.peer_ack_delay_s = delay_s

    def probe_answered(self, ack: int) -> bool:
        """Whether an acknowledgement shows that a probe has repaired a loss (section 7.4.2)."""
        if self.probe_end is None or ack < self.probe_end:
            return False
        repaired = self.probe_repeats and not self.probe_dsacked
        self.probe_end = None
        return repaired
