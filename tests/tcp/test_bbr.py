"""BBR before its first measurement, without measurements, and with samples it must reject."""

from __future__ import annotations

import pytest

from softnic.tcp.bbr import Bbr
from softnic.tcp.bbr import Mode as BbrMode
from softnic.tcp.config import TcpConfig
from softnic.tcp.scoreboard import Ack, Scoreboard

from .lab import Lab, Pump, Wire
from .test_reno import ack


def test_the_first_acknowledgements_may_give_no_round_trip_time() -> None:
    """ACKs of retransmitted data, for example, yield neither a round-trip time nor a rate."""
    bbr = Bbr(1514)
    window = bbr.cwnd
    for una in range(2, 12):
        bbr.on_ack(ack(1000, 1000, una, rtt=0.0))
    assert bbr.cwnd == window + 10 * 1000
    assert bbr.rate == 0.0


def test_compressed_acknowledgements_do_not_raise_the_rate() -> None:
    """A kilobyte leaves every millisecond and acknowledgements are delayed: those of the first ten arrive at 18 ms,
    of the next ten at 21 (draft-cheng-iccrg-delivery-rate-estimation-02, section 4.1.2)."""
    bbr, flight = Bbr(1000), Scoreboard()

    def send(number: int) -> None:
        flight.sent(number * 1000, (number + 1) * 1000, 1000, number * 0.001)

    def acknowledge(una: int, now: float) -> None:
        told = ack(0, flight.size, now=now, rtt=0.002)
        flight.acknowledge(una, told)
        flight.arrived(told)
        told.delivered = flight.delivered
        bbr.on_ack(told)

    for number in range(19):
        send(number)
    acknowledge(10_000, now=0.018)
    send(19)
    acknowledge(20_000, now=0.021)
    assert bbr.rate == pytest.approx(1e6)


def tell_newest(told: Ack, sent_at: float, delivered: int, first_sent_at: float, limited: bool) -> None:
    """The newest of the ranges that have arrived."""
    newest = told.newest
    newest.sent_at = newest.delivered_at = sent_at
    newest.delivered, newest.first_sent_at, newest.app_limited = delivered, first_sent_at, limited
    newest.never_retransmitted = told.has_newest = True


class Path:
    """Frames arrive at a given rate, 50 ms after they left, and are acknowledged every 2 ms."""

    RTT, STEP, RATE = 0.05, 0.002, 1e6
    ROUND = int(RTT / STEP)

    def __init__(self) -> None:
        self.bbr = Bbr(1000)
        self.now = 86_400.0
        self.delivered = [0] * self.ROUND
        """Bytes delivered at each step of the last round trip."""

    def run(
        self, seconds: float, rate: float = RATE, limited: bool = False, smoothed: float = 1.0
    ) -> list[tuple[int, float, int]]:
        """Runs for `seconds`; returns BBR's mode, pacing gain and window after each step.

        `smoothed`: of round trips, as a multiple of RTT.
        """
        found, bbr = [], self.bbr
        for _ in range(round(seconds / self.STEP)):
            self.now += self.STEP
            self.delivered.append(self.delivered[-1] + int(rate * self.STEP))
            left = self.now - self.RTT
            told = ack(int(rate * self.STEP), bbr.cwnd, now=self.now, rtt=self.RTT + self.now * 1e-9)  # never as short
            tell_newest(told, left, self.delivered[-1 - self.ROUND], left - self.RTT, limited)
            told.delivered, told.srtt = self.delivered[-1], smoothed * self.RTT
            told.pipe = min(bbr.cwnd, int(rate * self.RTT))
            bbr.on_ack(told)
            found.append((bbr.mode, (bbr.pacing_rate(self.RTT) or 0.0) / rate, bbr.cwnd))
        return found


class Short(Path):
    RTT, ROUND = 0.01, 5


class TestPath:
    @pytest.fixture
    def path(self) -> Path:
        """A path on which BBR has left STARTUP and found the available rate."""
        path = Path()
        path.run(3)
        assert path.bbr.mode == BbrMode.PROBE_BW
        assert path.bbr.rate == pytest.approx(path.RATE, rel=0.01)
        return path

    def test_pacing_gain_cycle_probes_in_one_round_trip_of_eight_and_drains_in_the_next(self, path: Path) -> None:
        steps = path.run(8 * (path.RTT + path.STEP))
        gains = [round(gain, 2) for mode, gain, _ in steps if mode == BbrMode.PROBE_BW]
        assert set(gains) == {0.75, 1.0, 1.25}
        assert gains.count(1.25) == pytest.approx(len(steps) / 8, abs=2)

    def test_no_probe_rtt_at_the_start(self) -> None:
        """The minimum round-trip time does not expire before one was measured, at any time of the clock."""
        assert Path().run(3)[0][0] == BbrMode.STARTUP
        assert BbrMode.PROBE_RTT not in {mode for mode, _, _ in Path().run(3)}

    def test_rates_measured_in_probe_rtt_are_ignored(self) -> None:
        """It lasts twice the ten round trips for which a rate is kept."""
        path = Short()
        path.run(3)
        while path.run(path.STEP)[0][0] != BbrMode.PROBE_RTT:
            assert path.now < 86_400 + 60
        path.run(0.2 + path.RTT, rate=4 * 1000 / path.RTT)
        assert path.bbr.mode == BbrMode.PROBE_BW
        assert path.bbr.rate == pytest.approx(path.RATE, rel=0.01)

    @pytest.mark.parametrize(("smoothed", "products"), [(1.0, 2.0), (1.2, 2.0), (1.3, 1.5), (2.0, 1.5)])
    def test_the_window_is_two_products_and_one_and_a_half_beside_a_queue(
        self, path: Path, smoothed: float, products: float
    ) -> None:
        """But for the round trips in which a higher rate is looked for."""
        path.run(1, smoothed=smoothed)
        steps = path.run(2, smoothed=smoothed)
        for probes, expected in ((False, products), (True, 2.0)):
            windows = [cwnd for _, gain, cwnd in steps if (gain > 1.1) == probes]
            assert max(windows[2:]) == pytest.approx(expected * path.RATE * path.RTT + 3000, rel=0.02)

    def test_the_window_of_startup_is_two_products(self) -> None:
        path = Path()
        windows = [cwnd for mode, _, cwnd in path.run(3) if mode == BbrMode.STARTUP]
        assert windows[-1] == pytest.approx(2 * path.RATE * path.RTT + 3000, rel=0.02)

    def test_the_first_samples_do_not_slow_the_start_down(self) -> None:
        """An initial window leaves in a third of a round trip, whatever its first frames' rate was."""
        path = Path()
        rates = [gain * path.RATE for _, gain, _ in path.run(0.06, rate=20e3)]
        assert path.bbr.rate
        assert min(rates) >= 2.88 * 10_000 / path.RTT

    def test_a_rate_expires_after_ten_round_trips(self, path: Path) -> None:
        path.run(8 * path.RTT, rate=path.RATE / 2)
        assert path.bbr.rate == pytest.approx(path.RATE, rel=0.01)
        path.run(5 * path.RTT, rate=path.RATE / 2)
        assert path.bbr.rate == pytest.approx(path.RATE / 2, rel=0.01)

    def test_application_limited_samples_do_not_lower_the_rate(self, path: Path) -> None:
        path.run(20 * path.RTT, rate=path.RATE / 2, limited=True)
        assert path.bbr.rate == pytest.approx(path.RATE, rel=0.01)

    def test_a_single_sample_over_a_short_interval_is_ignored(self, path: Path) -> None:
        told = ack(1000, path.bbr.cwnd, now=path.now + 0.001, rtt=0.1)
        left = path.now - 0.001
        tell_newest(told, left, path.delivered[-1] - 50_000, left - 0.001, False)
        told.delivered = path.delivered[-1]
        path.bbr.on_ack(told)
        assert path.bbr.rate == pytest.approx(path.RATE, rel=0.01)

    def test_probe_rtt_with_half_a_product_in_five_seconds(self, path: Path) -> None:
        path.run(6)
        steps = path.run(10)
        dry = [cwnd for mode, _, cwnd in steps if mode == BbrMode.PROBE_RTT]
        assert min(dry) == pytest.approx(path.RATE * path.RTT / 2 + 3000, rel=0.02)
        assert steps[-1][2] >= 1.49 * path.RATE * path.RTT

    def test_the_minimum_round_trip_is_that_of_ten_seconds(self, path: Path) -> None:
        before, path.RTT = path.bbr.least_rtt, 2 * path.RTT
        path.run(6.5)
        assert path.bbr.least_rtt == before
        assert path.bbr.recent_rtt == pytest.approx(path.RTT, rel=0.01)
        path.run(4)
        assert path.bbr.least_rtt == pytest.approx(path.RTT, rel=0.01)


def test_pauses_are_as_good_as_probe_rtt_and_keep_the_window() -> None:
    """A transfer a second, for longer than a minimum round trip is valid."""
    lab = Lab(Wire(delay_s=0.02), config=TcpConfig(congestion="bbr"))
    client, server = lab.pair()
    took, modes = [], set()
    for number in range(1, 16):
        began = lab.now
        client.send(bytes(300_000))

        def done(until: int = number * 300_000) -> bool:
            modes.add(client.congestion.mode)  # type: ignore[attr-defined]
            server.recv(1 << 20)
            return server.rcv.bytes_received >= until

        assert lab.run(done)
        took.append(lab.now - began)
        lab.run(limit_s=1.0)
    assert BbrMode.PROBE_RTT not in modes
    assert max(took[2:]) < 0.09 < took[0], "slow start once"


def test_a_link_without_delay() -> None:
    lab = Lab(Wire(delay_s=0.0), config=TcpConfig(congestion="bbr"))
    client, server = lab.pair()
    pump = Pump(client, server, bytes(300_000))
    assert lab.run(pump)
    assert pump.got == bytes(300_000)
