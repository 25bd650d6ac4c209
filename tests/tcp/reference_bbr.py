"""BBR in Python: the reference of native/tcp/bbr.c, whose fields softnic/tcp/bbr.py describes."""

from __future__ import annotations

from collections import deque

from softnic.tcp.bbr import Mode as BbrMode
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


class ReferenceBbr:
    def __init__(self, smss: int) -> None:
        self.smss = smss
        self.cwnd = 10 * smss
        self.mode = BbrMode.STARTUP
        self.gain = _HIGH_GAIN
        self._rates: deque[tuple[int, float]] = deque()
        """(round, wire bytes per second), decreasing: the first is the maximum of the last rounds."""
        self.least_rtt = _NEVER
        self.least_rtt_at = 0.0
        self.round = 0
        self.round_ends = 0
        self.full_rate = 0.0
        self.full_rounds = 0
        self.phase = 0
        self.phase_at = 0.0
        self.probe_ends: float | None = None
        self.limited_until = 0
        self.resume = 0

    @property
    def rate(self) -> float:
        """Wire bytes per second; 0 before the first sample."""
        return self._rates[0][1] if self._rates else 0.0

    def _product(self, gain: float) -> int:
        """Returns the bandwidth-delay product times `gain`, plus a slack for delayed acknowledgements."""
        carried = int(gain * self.rate * self.least_rtt) if self.rate else 0
        return carried + _SLACK_FRAMES * self.smss

    def on_ack(self, ack: Ack) -> None:
        expired = self._measure(ack)
        self._change_mode(ack, expired)
        if self.mode is BbrMode.PROBE_RTT:
            self.cwnd = min(self.cwnd, _LEAST_FRAMES * self.smss)
            return
        target = self._product(_HIGH_GAIN if self.mode is BbrMode.STARTUP else _WINDOW_GAIN)
        if not self.rate or self.cwnd < target:
            self.cwnd += ack.wire_bytes
        if self.rate and self.mode is not BbrMode.STARTUP:
            self.cwnd = min(self.cwnd, target)
        self.cwnd = max(self.cwnd, _LEAST_FRAMES * self.smss)

    def _measure(self, ack: Ack) -> bool:
        """Samples round trip and rate of an acknowledgement. Returns whether the minimum round trip is outdated."""
        expired = self.least_rtt < _NEVER and ack.now > self.least_rtt_at + _RTT_S
        if ack.rtt > 0 and (ack.rtt <= self.least_rtt or expired):
            self.least_rtt, self.least_rtt_at = ack.rtt, ack.now
        if not ack.has_newest:
            return expired
        sent = ack.newest
        starts = sent.delivered >= self.round_ends
        if starts:
            self.round += 1
            self.round_ends = ack.delivered
        # Acknowledgements that were held and released together show no higher rate than the sender's.
        elapsed = max(ack.now - sent.delivered_at, sent.sent_at - sent.first_sent_at)
        if self.mode is BbrMode.PROBE_RTT:
            self.limited_until = ack.delivered + ack.pipe
        limited = sent.app_limited or sent.delivered < self.limited_until
        if elapsed >= self.least_rtt / 2 > 0:
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
        rates.append((self.round, rate))
        while rates[0][0] <= self.round - _BANDWIDTH_ROUNDS:
            rates.popleft()

    def _check_full_pipe(self) -> None:
        if self.rate >= self.full_rate * _GROWTH:
            self.full_rate, self.full_rounds = self.rate, 0
        else:
            self.full_rounds += 1

    def _change_mode(self, ack: Ack, expired: bool) -> None:
        if self.mode is BbrMode.STARTUP and self.full_rounds >= _FULL_ROUNDS:
            self.mode, self.gain = BbrMode.DRAIN, 1 / _HIGH_GAIN
        if self.mode is BbrMode.DRAIN and ack.pipe <= self._product(1.0):
            self._enter_probe_bw(ack.now)
        if self.mode is BbrMode.PROBE_BW and self._phase_is_over(ack):
            self.phase = (self.phase + 1) % len(_CYCLE)
            self.gain, self.phase_at = _CYCLE[self.phase], ack.now
        if self.mode is not BbrMode.PROBE_RTT and expired and self.rate:
            self.mode, self.gain = BbrMode.PROBE_RTT, 1.0
            self.resume, self.probe_ends = self.cwnd, None
        if self.mode is BbrMode.PROBE_RTT:
            self._probe_rtt(ack)

    def _phase_is_over(self, ack: Ack) -> bool:
        over = ack.now > self.phase_at + self.least_rtt
        if self.gain > 1:
            return over and bool(ack.flight_size >= self._product(self.gain))
        return over or (self.gain < 1 and bool(ack.pipe <= self._product(1.0)))

    def _enter_probe_bw(self, now: float) -> None:
        self.mode = BbrMode.PROBE_BW
        self.phase, self.phase_at = 2, now
        self.gain = _CYCLE[self.phase]

    def _probe_rtt(self, ack: Ack) -> None:
        if self.probe_ends is None:
            if ack.pipe <= _LEAST_FRAMES * self.smss:
                self.probe_ends = ack.now + _PROBE_RTT_S
            return
        if ack.now < self.probe_ends:
            return
        self.least_rtt_at = ack.now
        self.cwnd = max(self.cwnd, self.resume)
        if self.full_rounds >= _FULL_ROUNDS:
            self._enter_probe_bw(ack.now)
        else:
            self.mode, self.gain = BbrMode.STARTUP, _HIGH_GAIN

    def pacing_rate(self, rtt: float) -> float | None:
        if self.rate:
            return self.gain * self.rate
        return _HIGH_GAIN * self.cwnd / rtt
