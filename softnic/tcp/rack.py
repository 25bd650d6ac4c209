"""Which of what is on its way is lost: RACK, and when to ask with a tail loss probe (RFC 8985).

Something is lost if something sent later has arrived, and a reordering window has passed since it should have too. The
window is nothing until three segments have arrived out of order or recovery is on; where reordering has been seen it is
a quarter of the shortest round trip, and longer by as much for each round trip with a duplicate (RFC 2883) that this
caused. Frames of one range left at one time, so their order in the stream decides.

Departures. Segments are counted by wire bytes. A probe waits `MIN_PROBE_S` at least, because each look at a timer costs
a turn of the daemon; and the shortest round trip is that of the last one or two `MIN_RTT_S`.
"""

from __future__ import annotations

from softnic.tcp.scoreboard import OUT, SACKED, Ack, Scoreboard

DUPLICATE_THRESHOLD = 3
MIN_PROBE_S = 0.01
MIN_RTT_S = 60.0
MAX_PEER_ACK_DELAY_S = 0.2
"""What peers do in practice (RFC 8985, section 7.2); those with a NIC as ours do not hold it for as long."""
_ENOUGH = 2 * DUPLICATE_THRESHOLD - 1
"""Half segments: a share of a range's wire bytes may be rounded."""
_GRANULARITY_S = 1e-6
"""Sums of times round."""
_PERSIST = 16
"""Recoveries after which a longer window is forgotten."""
_NEVER = float("inf")


class MinimumRtt:
    """The least of the samples of the last one or two `MIN_RTT_S`."""

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._before = self._now = _NEVER
        self._since = -_NEVER

    def sample(self, rtt_s: float, now: float) -> None:
        if now - self._since > MIN_RTT_S:
            self._before = self._now if now - self._since < 2 * MIN_RTT_S else _NEVER
            self._now, self._since = rtt_s, now
        elif rtt_s < self._now:
            self._now = rtt_s

    @property
    def least(self) -> float:
        """Infinite before the first sample."""
        return min(self._before, self._now)


class Rack:
    """Positions as in seq.py, times in seconds."""

    __slots__ = (
        "_dsack_round",
        "_multiplier",
        "_persist",
        "end",
        "minimum",
        "peer_ack_delay_s",
        "probe_dsacked",
        "probe_end",
        "probe_repeats",
        "reordering_seen",
        "rtt",
        "sent_at",
    )

    def __init__(self) -> None:
        self.sent_at = -_NEVER
        """When the last sent of all that has arrived was sent."""
        self.end = 0
        """And where it ended."""
        self.rtt = 0.0
        """And how long after that its acknowledgement came."""
        self.minimum = MinimumRtt()
        self.peer_ack_delay_s = MAX_PEER_ACK_DELAY_S
        """For how long the peer may hold the ACK of a lone segment."""
        self.reordering_seen = False
        self._multiplier = 1
        self._persist = 0
        self._dsack_round: int | None = None
        self.probe_end: int | None = None
        """Behind the tail loss probe that is not acknowledged; None: there is none."""
        self.probe_repeats = False
        """It repeated what was sent before."""
        self.probe_dsacked = False

    def update(self, ack: Ack, repeat_rtt: float | None) -> None:
        """Takes note of what an acknowledgement tells (section 6.2, steps 1 to 3).

        `repeat_rtt`: for what was sent twice, what the timestamp echo says of its round trip; None: there is none.
        """
        if ack.reordered:
            self.reordering_seen = True
        sent = ack.newest
        if sent is None:
            return
        rtt = ack.now - sent.sent_at
        if sent.never_retransmitted:
            self.minimum.sample(rtt, ack.now)
        elif (repeat_rtt is not None and repeat_rtt > rtt + 0.002) or rtt < self.minimum.least < _NEVER:
            return  # it answers an earlier sending; timestamps count milliseconds
        self.rtt = rtt
        if (sent.sent_at, sent.end) > (self.sent_at, self.end):
            self.sent_at, self.end = sent.sent_at, sent.end

    def duplicate(self, una: int, nxt: int) -> None:
        """The peer says that something came twice: the reordering window was too short (section 6.2, step 4)."""
        if self.probe_end is not None and self.probe_repeats:
            self.probe_dsacked = True
            return
        if self._dsack_round is None or una >= self._dsack_round:
            self._dsack_round = nxt
            self._multiplier += 1
            self._persist = _PERSIST

    def recovered(self) -> None:
        """A recovery is over."""
        self._persist -= 1
        if self._persist <= 0:
            self._multiplier = 1

    def window(self, scoreboard: Scoreboard, recovering: bool, smss: int, srtt: float) -> float:
        if not self.reordering_seen and (recovering or 2 * scoreboard.sacked >= _ENOUGH * smss):
            return 0.0
        least = self.minimum.least
        return min(self._multiplier * least / 4, srtt) if least < _NEVER else srtt

    def detect(self, scoreboard: Scoreboard, window: float, now: float) -> float:
        """Marks what is lost (section 6.2, step 5). Returns when something else will be, if it has not arrived then."""
        wait = self.rtt + window
        until = _NEVER
        for sent in scoreboard.ranges:
            if sent.state != OUT or (sent.sent_at, sent.end) >= (self.sent_at, self.end):
                continue
            due = sent.sent_at + wait
            if due <= now + _GRANULARITY_S:
                scoreboard.mark_lost(sent)
            elif until == _NEVER or due > until:
                until = due
        return until

    def timed_out(self, scoreboard: Scoreboard, now: float, window: float) -> None:
        """The retransmission timer has expired: what was sent first is lost, and what is as old (section 6.3)."""
        if scoreboard.ranges and scoreboard.ranges[0].state == SACKED:
            scoreboard.on_sack_reneging()
        for index, sent in enumerate(scoreboard.ranges):
            if sent.state == OUT and (not index or sent.sent_at + self.rtt + window <= now):
                scoreboard.mark_lost(sent)
        self.probe_end = None

    # Tail loss probes

    def probe_after(self, scoreboard: Scoreboard, smss: int, srtt: float) -> float:
        """Seconds without an acknowledgement after which a probe is sent (section 7.2); infinity: none is, because one
        has been, or something is known of what arrived."""
        if self.probe_end is not None or scoreboard.sacked:
            return _NEVER
        if not srtt:
            return 1.0
        after = 2 * srtt
        if scoreboard.pipe <= smss:
            after += self.peer_ack_delay_s
        return after if after > MIN_PROBE_S else MIN_PROBE_S

    def probed(self, end: int, repeats: bool) -> None:
        self.probe_end, self.probe_repeats, self.probe_dsacked = end, repeats, False

    def cancel_probe(self) -> None:
        """A recovery has begun, which makes the answer to a probe meaningless."""
        self.probe_end = None

    def set_peer_ack_delay(self, delay_s: float) -> None:
        self.peer_ack_delay_s = delay_s

    def probe_answered(self, ack: int) -> bool:
        """Whether an acknowledgement shows that a probe has repaired a loss, which the congestion window has to pay
        for (section 7.4.2)."""
        if self.probe_end is None or ack < self.probe_end:
            return False
        repaired = self.probe_repeats and not self.probe_dsacked
        self.probe_end = None
        return repaired
