"""Loss detection: RACK, and tail loss probes (RFC 8985).

A range is lost if one sent later has arrived and a reordering window has passed since it should have arrived too. The
window is zero until three segments have arrived out of order or recovery is in progress. Where reordering has been seen
it is a quarter of the minimum round trip, extended by as much for each round trip with a D-SACK (RFC 2883). Frames of
one range left at one time, so their order in the stream decides.

Departures. Segments are counted by wire bytes. A probe waits 10 ms at least, because each timer costs a turn of
the daemon. The minimum round trip is that of the last one or two minutes.

The steps are C (native/tcp/rack.c).
"""

from __future__ import annotations

from softnic._fields import Memory, MinimumRttFields, RackFields

DUPLICATE_THRESHOLD = 3
MAX_PEER_ACK_DELAY_S = 0.2
"""Delay of other peers (RFC 8985, section 7.2); peers with a softnic NIC use `TcpConfig.ack_delay_s`."""
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

    __slots__ = ("minimum",)

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
    probe_repeats: bool
    """The probe is a retransmission."""
    probe_dsacked: bool
    """A D-SACK has reported it."""
    dsack_round: int | None
    """`snd_nxt` when a D-SACK last extended the reordering window; another one does once that is acknowledged."""
    multiplier: int
    """Quarters of the minimum round trip in the reordering window."""
    persist: int
    """Recoveries that are left until the extension ends."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.sent_at = -_NEVER
        self.minimum = MinimumRtt(memory=self.memory)
        self.peer_ack_delay_s = MAX_PEER_ACK_DELAY_S
        self.probe_end = self.dsack_round = None
        self.multiplier = 1

    def set_peer_ack_delay(self, delay_s: float) -> None:
        self.peer_ack_delay_s = delay_s
