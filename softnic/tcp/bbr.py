"""Congestion control: BBR, for paths that lose frames without being congested (draft-cardwell-iccrg-bbr-congestion-
control-00, version 1, as in Linux).

Windows that shrink with each loss cannot fill such a path: at 0.1 % and 20 ms CUBIC and Reno keep some 40 frames in
flight (RFC 9438, section 5.2), a fortieth of what 1 Gbit/s takes. BBR measures instead how fast frames arrive at best
and how short a round trip is at least, sends at that rate and keeps about twice their product in flight:

1. STARTUP: 2.89 times the rate measured, until it has not grown by a quarter for three round trips;
2. DRAIN: slower, until what STARTUP left in the bottleneck's queue has gone;
3. PROBE_BW: in turns of eight round trips, a quarter faster in one, as much slower in the next, then as measured;
4. PROBE_RTT: for 200 ms in ten seconds almost nothing in flight, if the round trip was never as short since.

Rates are those of draft-cheng-iccrg-delivery-rate-estimation-02: what arrived between two acknowledgements, in the time
between them or that in which it was sent, whichever is longer.

Departures: rates are measured by records, not frames; losses and the first round of recovery change nothing.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from softnic.tcp.congestion import INFINITY, Congestion
from softnic.tcp.scoreboard import Ack

_HIGH_GAIN = 2.885
"""2 / ln 2: the least that doubles the rate with every round trip."""
_CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_WINDOW_GAIN = 2.0
_BANDWIDTH_ROUNDS = 10
_RTT_S = 10.0
_PROBE_RTT_S = 0.2
_LEAST_FRAMES = 4
_GROWTH = 1.25
_FULL_ROUNDS = 3
_SLACK_FRAMES = 3
_NEVER = float("inf")


class Mode(Enum):
    STARTUP = "startup"
    DRAIN = "drain"
    PROBE_BW = "probe bandwidth"
    PROBE_RTT = "probe round trip"


class Bbr(Congestion):
    """As Congestion; `ssthresh` has no meaning here."""

    name = "bbr"
    reduces = False

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self.ssthresh = INFINITY
        self.mode = Mode.STARTUP
        self._gain = _HIGH_GAIN
        self._rates: deque[tuple[int, float]] = deque()
        """(round, wire bytes a second): falling, the first is the greatest of the last rounds."""
        self._rtt = _NEVER
        self._rtt_at = 0.0
        self._round = 0
        self._round_ends = 0
        self._full_rate = 0.0
        self._full_rounds = 0
        self._phase = 0
        self._phase_at = 0.0
        self._probe_ends: float | None = None
        self._limited_until = 0
        """What was sent before so much had arrived was sent in PROBE_RTT, and says nothing of the path's rate."""
        self._resume = 0
        """The window before PROBE_RTT."""

    @property
    def rate(self) -> float:
        """Wire bytes a second; 0 before anything was measured."""
        return self._rates[0][1] if self._rates else 0.0

    def _product(self, gain: float) -> int:
        """What is in flight where nothing waits in a queue, times `gain`, and what acknowledgements hold back. Before
        anything was measured the round trip is infinite, and the rate 0."""
        carried = int(gain * self.rate * self._rtt) if self.rate else 0
        return carried + _SLACK_FRAMES * self.smss

    def on_ack(self, ack: Ack) -> None:
        expired = self._measure(ack)
        self._change_mode(ack, expired)
        if self.mode is Mode.PROBE_RTT:
            self.cwnd = min(self.cwnd, _LEAST_FRAMES * self.smss)
            return
        target = self._product(_HIGH_GAIN if self.mode is Mode.STARTUP else _WINDOW_GAIN)
        if not self.rate or self.cwnd < target:
            self.cwnd += ack.wire_bytes
        if self.rate and self.mode is not Mode.STARTUP:
            self.cwnd = min(self.cwnd, target)
        self.cwnd = max(self.cwnd, _LEAST_FRAMES * self.smss)

    def _measure(self, ack: Ack) -> bool:
        """Takes the round trip and the rate that an acknowledgement shows. Returns whether the shortest round trip is
        an old one."""
        expired = self._rtt < _NEVER and ack.now > self._rtt_at + _RTT_S
        if ack.rtt > 0 and (ack.rtt <= self._rtt or expired):
            self._rtt, self._rtt_at = ack.rtt, ack.now
        sent = ack.newest
        if sent is None:
            return expired
        starts = sent.delivered >= self._round_ends
        if starts:
            self._round += 1
            self._round_ends = ack.delivered
        # What holds acknowledgements back and lets them go together cannot have sent faster than we did.
        elapsed = max(ack.now - sent.delivered_at, sent.sent_at - sent.first_sent_at)
        if self.mode is Mode.PROBE_RTT:
            self._limited_until = ack.delivered + ack.pipe
        limited = sent.app_limited or sent.delivered < self._limited_until
        if elapsed >= self._rtt / 2 > 0:
            rate = (ack.delivered - sent.delivered) / elapsed
            if not limited or rate > self.rate:
                self._note(rate)
            if starts and not limited:
                self._look_whether_full()
        return expired

    def _note(self, rate: float) -> None:
        rates = self._rates
        while rates and rates[-1][1] <= rate:
            rates.pop()
        rates.append((self._round, rate))
        while rates[0][0] <= self._round - _BANDWIDTH_ROUNDS:
            rates.popleft()

    def _look_whether_full(self) -> None:
        if self.rate >= self._full_rate * _GROWTH:
            self._full_rate, self._full_rounds = self.rate, 0
        else:
            self._full_rounds += 1

    def _change_mode(self, ack: Ack, expired: bool) -> None:
        if self.mode is Mode.STARTUP and self._full_rounds >= _FULL_ROUNDS:
            self.mode, self._gain = Mode.DRAIN, 1 / _HIGH_GAIN
        if self.mode is Mode.DRAIN and ack.pipe <= self._product(1.0):
            self._enter_probe_bw(ack.now)
        if self.mode is Mode.PROBE_BW and self._phase_is_over(ack):
            self._phase = (self._phase + 1) % len(_CYCLE)
            self._gain, self._phase_at = _CYCLE[self._phase], ack.now
        if self.mode is not Mode.PROBE_RTT and expired and self.rate:
            self.mode, self._gain = Mode.PROBE_RTT, 1.0
            self._resume, self._probe_ends = self.cwnd, None
        if self.mode is Mode.PROBE_RTT:
            self._probe_rtt(ack)

    def _phase_is_over(self, ack: Ack) -> bool:
        over = ack.now > self._phase_at + self._rtt
        if self._gain > 1:
            return over and ack.flight_size >= self._product(self._gain)
        return over or (self._gain < 1 and ack.pipe <= self._product(1.0))

    def _enter_probe_bw(self, now: float) -> None:
        self.mode = Mode.PROBE_BW
        self._phase, self._phase_at = 2, now
        self._gain = _CYCLE[self._phase]

    def _probe_rtt(self, ack: Ack) -> None:
        if self._probe_ends is None:
            if ack.pipe <= _LEAST_FRAMES * self.smss:
                self._probe_ends = ack.now + _PROBE_RTT_S
            return
        if ack.now < self._probe_ends:
            return
        self._rtt_at = ack.now
        self.cwnd = max(self.cwnd, self._resume)
        if self._full_rounds >= _FULL_ROUNDS:
            self._enter_probe_bw(ack.now)
        else:
            self.mode, self._gain = Mode.STARTUP, _HIGH_GAIN

    def on_loss(self, flight_size: int, now: float) -> None:
        """Nothing changes."""

    def on_idle(self) -> None:
        """What was measured holds; pacing keeps the first window from being a burst."""

    def pacing_rate(self, rtt: float) -> float | None:
        if self.rate:
            return self._gain * self.rate
        return _HIGH_GAIN * self.cwnd / rtt
