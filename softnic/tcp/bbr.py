"""BBR congestion control, for paths that lose frames without congestion
(draft-cardwell-iccrg-bbr-congestion-control-00, version 1, as in Linux).

Windows that shrink with each loss cannot fill such a path: at 0.1 % and 20 ms CUBIC and Reno keep some 40 frames in
flight (RFC 9438, section 5.2), a fortieth of what 1 Gbit/s needs. BBR measures the maximum delivery rate and the
minimum round trip, sends at that rate and keeps about twice their product in flight:

1. STARTUP: 2.89 times the measured rate, until it has not grown by a quarter for three round trips;
2. DRAIN: slower, until the queue that STARTUP built at the bottleneck is empty;
3. PROBE_BW: cycles of eight round trips, a quarter faster in one, a quarter slower in the next, then as measured;
4. PROBE_RTT: almost nothing in flight for 200 ms in ten seconds, if no round trip was as short since.

Rate samples follow draft-cheng-iccrg-delivery-rate-estimation-02: what arrived between two acknowledgements, divided by
the time between them or the time in which it was sent, whichever is longer.

Departures: rates are measured by sent ranges, not frames; losses and the first round of recovery change nothing.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from softnic.tcp.congestion import INFINITY, Congestion
from softnic.tcp.scoreboard import Ack

_HIGH_GAIN = 2.885
"""2 / ln 2: the smallest gain that doubles the rate every round trip."""
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
    """`ssthresh` is not used."""

    name = "bbr"
    reduces = False

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self.ssthresh = INFINITY
        self.mode = Mode.STARTUP
        self._gain = _HIGH_GAIN
        self._rates: deque[tuple[int, float]] = deque()
        """(round, wire bytes per second), decreasing: the first is the maximum of the last rounds."""
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
        """Ranges sent before `delivered` reached this were sent in PROBE_RTT: their rate is not the path's."""
        self._resume = 0
        """The window before PROBE_RTT."""

    @property
    def rate(self) -> float:
        """Wire bytes per second; 0 before the first sample."""
        return self._rates[0][1] if self._rates else 0.0

    def _product(self, gain: float) -> int:
        """Returns the bandwidth-delay product times `gain`, plus a slack for delayed acknowledgements."""
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
        """Samples round trip and rate of an acknowledgement. Returns whether the minimum round trip is outdated."""
        expired = self._rtt < _NEVER and ack.now > self._rtt_at + _RTT_S
        if ack.rtt > 0 and (ack.rtt <= self._rtt or expired):
            self._rtt, self._rtt_at = ack.rtt, ack.now
        if not ack.has_newest:
            return expired
        sent = ack.newest
        starts = sent.delivered >= self._round_ends
        if starts:
            self._round += 1
            self._round_ends = ack.delivered
        # Acknowledgements that were held and released together show no higher rate than the sender's.
        elapsed = max(ack.now - sent.delivered_at, sent.sent_at - sent.first_sent_at)
        if self.mode is Mode.PROBE_RTT:
            self._limited_until = ack.delivered + ack.pipe
        limited = sent.app_limited or sent.delivered < self._limited_until
        if elapsed >= self._rtt / 2 > 0:
            rate = (ack.delivered - sent.delivered) / elapsed
            if not limited or rate > self.rate:
                self._add_rate(rate)
            if starts and not limited:
                self._check_full_pipe()
        return expired

    def _add_rate(self, rate: float) -> None:
        rates = self._rates
        while rates and rates[-1][1] <= rate:
            rates.pop()
        rates.append((self._round, rate))
        while rates[0][0] <= self._round - _BANDWIDTH_ROUNDS:
            rates.popleft()

    def _check_full_pipe(self) -> None:
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
            return over and bool(ack.flight_size >= self._product(self._gain))
        return over or (self._gain < 1 and bool(ack.pipe <= self._product(1.0)))

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
        """Losses do not change the window."""

    def on_idle(self) -> None:
        """The measurements stay valid; pacing keeps the first window from being a burst."""

    def pacing_rate(self, rtt: float) -> float | None:
        if self.rate:
            return self._gain * self.rate
        return _HIGH_GAIN * self.cwnd / rtt
