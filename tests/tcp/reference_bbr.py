"""BBR in Python: the reference of native/tcp/bbr.c, whose fields softnic/tcp/bbr.py describes."""

from __future__ import annotations

import math
from collections import deque

from softnic.tcp.bbr import Mode as BbrMode
from softnic.tcp.scoreboard import Ack

_HIGH_GAIN = 2.885
"""2 / ln 2: the smallest gain that doubles the rate every round trip."""
_CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_WINDOW_GAIN = 1.5
_LARGE_WINDOW_GAIN = 2.0
_QUEUELESS = 1.25
_PROBE_RTT_GAIN = 0.5
_BANDWIDTH_ROUNDS = 10
_LEAST_RTT_S = 10.0
_RECENT_RTT_S = 5.0
_PROBE_RTT_S = 0.2
_LEAST_FRAMES = 4
_GROWTH = 1.25
_FULL_ROUNDS = 3
_SLACK_FRAMES = 3
_LOSS_SHARE = 0.02
_LOSS_BETA = 0.7
_HEADROOM = 0.85
_COUNTED_FRAMES = 500
_REACH_ROUNDS = 3
_FIRST_STEP_FRAMES = 16
_INITIAL_FRAMES = 10
_BOUNDED_S = 0.5
_RECOVERED = 0.6
_REMEMBERED = 6
_NEVER = float("inf")


class ReferenceBbr:
    def __init__(self, smss: int) -> None:
        self.smss = smss
        self.cwnd = 10 * smss
        self.mode = BbrMode.STARTUP
        self.gain = _HIGH_GAIN
        self._rates: deque[tuple[int, float]] = deque()
        """(round, wire bytes per second), decreasing: the first is the maximum of the last rounds."""
        self.least_rtt = self.recent_rtt = _NEVER
        self.least_rtt_at = self.recent_rtt_at = 0.0
        self.round = 0
        self.round_ends = 0
        self.full_rate = 0.0
        self.full_rounds = 0
        self.phase = 0
        self.phase_at = 0.0
        self.probe_ends: float | None = None
        self.limited_until = 0
        self.restarting = False
        self.bound = 0
        self.bound_step = 0
        self.lost_much = False
        self.counted_delivered = 0
        self.counted_lost = 0
        self.round_flight = 0
        self.crowded_at = -_NEVER
        self.seen_lost = 0
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
        if ack.lost_total > self.seen_lost and self._is_queued(ack):
            self.crowded_at = ack.now
        self.seen_lost = ack.lost_total
        if self.mode is BbrMode.PROBE_RTT:
            self.cwnd = min(self.cwnd, self._probe_rtt_window)
            return
        has_room = self.gain > 1 or not self._is_queued(ack)
        target = self._product(_LARGE_WINDOW_GAIN if has_room else _WINDOW_GAIN)
        if not self.rate or self.cwnd < target:
            self.cwnd += ack.wire_bytes
        if self.rate and self.mode is not BbrMode.STARTUP:
            self.cwnd = min(self.cwnd, target)
        if self.bound:
            self.cwnd = min(self.cwnd, self.bound if self.gain > 1 else int(_HEADROOM * self.bound))
        self.cwnd = max(self.cwnd, _LEAST_FRAMES * self.smss)

    @property
    def _probe_rtt_window(self) -> int:
        return max(self._product(_PROBE_RTT_GAIN), _LEAST_FRAMES * self.smss)

    def _measure_rtt(self, rtt: float, now: float) -> bool:
        """Samples a round trip. Returns whether the recent minimum is outdated."""
        expired = self.recent_rtt < _NEVER and now > self.recent_rtt_at + _RECENT_RTT_S
        if rtt <= 0:
            return expired
        if rtt <= self.recent_rtt or expired:
            self.recent_rtt, self.recent_rtt_at = rtt, now
        if self.restarting:
            self.restarting = expired = False
            self.recent_rtt_at = now
        if self.recent_rtt <= self.least_rtt or now > self.least_rtt_at + _LEAST_RTT_S:
            self.least_rtt, self.least_rtt_at = self.recent_rtt, self.recent_rtt_at
        return expired

    def _measure(self, ack: Ack) -> bool:
        """Samples round trip and rate. Returns whether the recent minimum round trip is outdated."""
        expired = self._measure_rtt(ack.rtt, ack.now)
        if not ack.has_newest:
            return expired
        sent = ack.newest
        starts = sent.delivered >= self.round_ends
        self.round_flight = max(self.round_flight, ack.flight_size)
        if starts:
            self.round += 1
            self.round_ends = ack.delivered
            self._adapt_bound(ack)
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

    def _adapt_bound(self, ack: Ack) -> None:
        lost, arrived = ack.lost_total - self.counted_lost, ack.delivered - self.counted_delivered
        flight, self.round_flight = self.round_flight, 0
        counted = lost + arrived >= _COUNTED_FRAMES * self.smss
        if counted:
            self.counted_lost, self.counted_delivered = ack.lost_total, ack.delivered
        if counted and lost > _LOSS_SHARE * (lost + arrived):
            reduced = int(_LOSS_BETA * flight)
            if not self.bound or reduced < self.bound:
                self.bound = max(reduced, int(_LOSS_BETA * self._product(1.0)))
            self.bound_step = _FIRST_STEP_FRAMES * self.smss
            self.lost_much = True
            if self.mode is BbrMode.STARTUP:
                self.full_rounds = _FULL_ROUNDS
        elif self.bound and self.gain > 1 and flight + self.smss >= self.bound:
            self.bound += self.bound_step
            self.bound_step *= 2

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
            self._enter_probe_bw(ack)
        if self.mode is BbrMode.PROBE_BW and self._phase_is_over(ack):
            self.phase = (self.phase + 1) % len(_CYCLE)
            self.gain, self.phase_at, self.lost_much = _CYCLE[self.phase], ack.now, False
        if self.mode is not BbrMode.PROBE_RTT and expired and self.rate:
            self.mode, self.gain = BbrMode.PROBE_RTT, 1.0
            self.resume, self.probe_ends = self.cwnd, None
        if self.mode is BbrMode.PROBE_RTT:
            self._probe_rtt(ack)

    def _is_queued(self, ack: Ack) -> bool:
        return ack.srtt > _QUEUELESS * self.least_rtt

    def _phase_is_over(self, ack: Ack) -> bool:
        lasted = ack.now - self.phase_at
        over = lasted > self.least_rtt
        if self.phase == len(_CYCLE) - 1 and self._is_queued(ack):
            frames = self._product(1.0) / self.smss
            yielding = _RECOVERED * min(math.cbrt(0.75 * frames), frames * self.least_rtt)
            if ack.now < self.crowded_at + _REMEMBERED * yielding:
                return over and lasted > yielding
        if self.bound and self.phase == len(_CYCLE) - 1:
            return lasted > _BOUNDED_S
        if self.gain > 1:
            waited = not self.bound or lasted > _REACH_ROUNDS * self.least_rtt
            enough = bool(ack.flight_size >= self._product(self.gain)) and waited
            return over and (enough or self.lost_much)
        return over or (self.gain < 1 and bool(ack.pipe <= self._product(1.0)))

    def _enter_probe_bw(self, ack: Ack) -> None:
        self.mode = BbrMode.PROBE_BW
        self.phase, self.phase_at = 2 + ack.delivered // self.smss % (len(_CYCLE) - 2), ack.now
        self.gain, self.lost_much = _CYCLE[self.phase], False

    def _probe_rtt(self, ack: Ack) -> None:
        if self.probe_ends is None:
            if ack.pipe <= self._probe_rtt_window:
                self.probe_ends = ack.now + _PROBE_RTT_S
            return
        if ack.now < self.probe_ends:
            return
        self.recent_rtt_at = ack.now
        self.cwnd = max(self.cwnd, self.resume)
        if self.full_rounds >= _FULL_ROUNDS:
            self._enter_probe_bw(ack)
        else:
            self.mode, self.gain = BbrMode.STARTUP, _HIGH_GAIN

    def pacing_rate(self, rtt: float) -> float | None:
        if not self.rate:
            return _HIGH_GAIN * self.cwnd / rtt
        least = _HIGH_GAIN * (_INITIAL_FRAMES * self.smss) / rtt if self.mode is BbrMode.STARTUP else 0.0
        return max(self.gain * self.rate, least)
