"""Pacing: bursts of a millisecond, longer after a late timer, but not after a pause of the application."""

from __future__ import annotations

import pytest

from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.pacing import Pacer
from tests.tcp.flows import flow
from tests.tcp.lab import Lab, Wire
from tests.tcp.script import ACK, MSS, Script

RATE = 1e8
SMSS = 1000
BURST_S = 0.001
CREDIT_S = 0.008


def test_bursts_keep_the_rate() -> None:
    pacer, now, sent = Pacer(), 10.0, 0
    pacer.rate = RATE
    for _ in range(100):
        while (frames := pacer.burst(SMSS, now)) > 0:
            pacer.sent(frames * SMSS, now)
            sent += frames * SMSS
        now = pacer.free_at
    assert sent / (now - 10.0) == pytest.approx(RATE, rel=0.03)


def test_a_late_timer_lengthens_a_burst_but_a_pause_does_not() -> None:
    pacer = Pacer()
    pacer.rate = RATE
    assert pacer.burst(SMSS, 10.0) == RATE * BURST_S // SMSS
    pacer.woken(0.004)
    assert pacer.burst(SMSS, 10.0) == pytest.approx(RATE * (BURST_S + 0.004) / SMSS, abs=1)
    pacer.woken(5.0)
    assert pacer.burst(SMSS, 10.0) == pytest.approx(RATE * (BURST_S + CREDIT_S) / SMSS, abs=1)
    pacer.sent(SMSS, 10.0)
    assert pacer.burst(SMSS, 20.0) == RATE * BURST_S // SMSS


def test_two_bursts_leave_at_once_after_a_pause() -> None:
    pacer = Pacer()
    pacer.rate = RATE
    pacer.sent(int(RATE * BURST_S), 10.0)
    assert pacer.free_at == pytest.approx(10.0)
    pacer.sent(int(RATE * BURST_S), 10.0)
    assert pacer.free_at == pytest.approx(10.0 + BURST_S)


def test_bursts_of_a_slow_rate_are_two_frames() -> None:
    pacer = Pacer()
    pacer.rate = 1000.0
    assert pacer.burst(SMSS, 10.0) == 2


@pytest.mark.parametrize(("cwnd", "factor"), [(49_000, 2.0), (51_000, 1.2), (100_000, 1.2)])
def test_the_rate_exceeds_the_window_per_round_trip(cwnd: int, factor: float) -> None:
    window = ALGORITHMS["cubic"](1000)
    window.cwnd, window.ssthresh = cwnd, 100_000
    assert window.pacing_rate(0.1) == pytest.approx(factor * cwnd / 0.1)


def writing(script: Script, srtt: float) -> Connection:
    """Return a connection with a megabyte to send in a window of that size."""
    connection = script.accept(window_scale=7)
    script.receive(ACK, 1, 1)
    flow(connection).srtt = flow(connection).latest_rtt = srtt
    flow(connection).cwnd = 1_000_000
    connection.send(bytes(800 * MSS))
    return connection


class TestConnection:
    def test_a_window_leaves_in_bursts(self) -> None:
        script = Script()
        connection = writing(script, 0.1)  # 20 MB/s: bursts of 20 kB
        for _ in range(10):
            script.sent()
            now = script.now = flow(connection).pacing_timer
        assert connection.wire_bytes_sent == pytest.approx(20e6 * (now - 100.0) + 20e3, rel=0.1)
        assert now - 100.0 == pytest.approx(0.01, rel=0.2)

    def test_a_late_timer_sends_what_it_missed(self) -> None:
        script = Script()
        connection = writing(script, 0.1)
        script.sent()
        before = connection.wire_bytes_sent
        script.now = flow(connection).pacing_timer + 0.004
        script.sent()
        assert connection.wire_bytes_sent - before == pytest.approx(20e6 * 0.005, rel=0.2)

    @pytest.mark.parametrize(("srtt", "paced"), [(0.0019, False), (0.002, True)])
    def test_no_pacing_on_short_paths(self, srtt: float, paced: bool) -> None:
        script = Script()
        connection = writing(script, srtt)
        script.sent()
        assert (flow(connection).pacing_rate is not None) is paced

    def test_the_pace_follows_a_round_trip_shorter_than_the_smoothed_one(self) -> None:
        script = Script()
        connection = writing(script, 0.1)
        flow(connection).latest_rtt = 0.02
        script.sent()
        assert flow(connection).pacing_rate == pytest.approx(2 * 1_000_000 / 0.02)

    def test_the_pace_ignores_a_round_trip_longer_than_the_smoothed_one(self) -> None:
        script = Script()
        connection = writing(script, 0.1)
        flow(connection).latest_rtt = 0.5
        script.sent()
        assert flow(connection).pacing_rate == pytest.approx(2 * 1_000_000 / 0.1)

    @pytest.mark.parametrize(("ago", "paced"), [(0.09, False), (0.11, True)])
    def test_no_pacing_while_the_local_link_is_full(self, ago: float, paced: bool) -> None:
        script = Script()
        connection = writing(script, 0.1)
        script.host.tcp.on_link_full(script.now - ago)
        script.sent()
        assert (flow(connection).pacing_rate is not None) is paced
        assert (flow(connection).scoreboard.pipe > 700 * MSS) is not paced


class TestRestart:
    """A connection that was idle for longer than a timeout."""

    SIZE = 1_000_000

    def transfer(self, lab: Lab, client: Connection, server: Connection) -> float:
        """Return the seconds until the server has read `SIZE` bytes."""
        began, sent, read = lab.now, 0, 0

        def done() -> bool:
            nonlocal sent, read
            sent += client.send(bytes(self.SIZE - sent))
            views = list(server.received)
            count = sum(map(len, views))
            server.consume(count)
            read += count
            return read == self.SIZE

        assert lab.run(done)
        return lab.now - began

    @pytest.mark.parametrize("congestion", ["reno", "cubic"])
    def test_slow_start_after_a_pause_uses_current_round_trip_times(self, congestion: str) -> None:
        """The round-trip times of a queue that has drained meanwhile neither set the pace nor end slow start."""
        lab = Lab(Wire(delay_s=0.05), config=TcpConfig(congestion=congestion))
        client, server = lab.pair()
        self.transfer(lab, client, server)
        assert flow(client).srtt == pytest.approx(0.1, rel=0.01)
        lab.run(limit_s=2.0)
        lab.wire.delay_s = 0.0005
        assert self.transfer(lab, client, server) < 0.008  # 7 rounds: 10, 20, ... 640 frames

    @pytest.mark.parametrize("congestion", ["reno", "cubic", "auto"])
    def test_a_transfer_a_second_starts_slowly_once(self, congestion: str) -> None:
        lab = Lab(Wire(delay_s=0.05), config=TcpConfig(congestion=congestion))
        client, server = lab.pair()
        took = []
        for _ in range(4):
            took.append(self.transfer(lab, client, server))
            lab.run(limit_s=1.0)
        assert took[0] > 0.3
        assert max(took[2:]) < 0.1, "half a round trip, and less than one for the window"

    @pytest.mark.parametrize(("pause_s", "part"), [(9.9, 1), (10.1, 2), (29.0, 4), (45.0, 16)])
    def test_a_window_is_halved_every_ten_seconds(self, pause_s: float, part: int) -> None:
        """Slow start leads to three quarters of what it was (RFC 2861, section 3.2)."""
        lab = Lab(Wire(delay_s=0.05), config=TcpConfig(congestion="cubic"))
        client, server = lab.pair()
        self.transfer(lab, client, server)
        flow(client).congestion.ssthresh = 20_000
        before = flow(client).cwnd
        lab.run(limit_s=pause_s - 0.1)
        client.send(b"x")
        lab.step()
        assert flow(client).cwnd == max(before // part, 10 * 1514)
        assert flow(client).ssthresh == 3 * before // 4

    def test_a_path_that_is_not_paced_gets_the_initial_window(self) -> None:
        """The rest would leave as a burst."""
        lab = Lab(Wire(delay_s=0.0005), config=TcpConfig(congestion="cubic"))
        client, server = lab.pair()
        self.transfer(lab, client, server)
        assert flow(client).cwnd > 10 * 1514
        lab.run(limit_s=1.0)
        client.send(b"x")
        lab.step()
        assert flow(client).cwnd == 10 * 1514

    def test_bbr_keeps_what_it_measured_for_a_minute(self) -> None:
        lab = Lab(Wire(delay_s=0.05), config=TcpConfig(congestion="bbr"))
        client, server = lab.pair()
        self.transfer(lab, client, server)
        for pause_s, keeps in ((58.0, True), (61.0, False)):
            lab.run(limit_s=pause_s)
            client.send(b"x")
            lab.step()
            assert bool(flow(client).congestion.rate) == keeps  # type: ignore[attr-defined]
        assert flow(client).cwnd == 10 * 1514

    def test_time_of_a_pause_is_not_time_of_cubic(self) -> None:
        """The window does not grow because of it."""
        lab = Lab(Wire(delay_s=0.05), config=TcpConfig(congestion="cubic"))
        client, server = lab.pair()
        self.transfer(lab, client, server)
        flow(client).congestion.ssthresh = flow(client).cwnd = 400_000
        self.transfer(lab, client, server)
        began = flow(client).congestion.began_at  # type: ignore[attr-defined]
        lab.run(limit_s=5.0)
        client.send(b"x")
        lab.step()
        assert flow(client).congestion.began_at > began + 4.9  # type: ignore[attr-defined]

    def test_the_initial_window_leaves_at_once(self) -> None:
        lab = Lab(Wire(delay_s=0.05), config=TcpConfig(congestion="cubic"))
        client, server = lab.pair()
        self.transfer(lab, client, server)
        lab.run(limit_s=70.0)
        lab.a.sent.clear()
        client.send(bytes(self.SIZE))
        lab.step()
        assert len(lab.a.sent) == 10


def test_without_a_rate_nothing_is_paced() -> None:
    pacer = Pacer()
    pacer.sent(10**9, 1.0)
    assert pacer.burst(SMSS, 1.0) > 10**6
