"""A silent peer: user timeout and keepalive (RFC 9293, sections 3.8.3 and 3.8.4)."""

from __future__ import annotations

import errno

import pytest

from softnic.comm.transport import KEEPALIVE_S, USER_TIMEOUT_MS
from softnic.tcp.connection import Connection
from softnic.tcp.state import State
from tests.tcp.lab import Lab, Wire
from tests.tcp.script import ACK, Script, state_of


class TestSilence:
    def test_unacknowledged_data_times_out(self, script: Script) -> None:
        connection = script.established()
        connection.set_user_timeout(4.0)
        script.wait(100)
        connection.send(b"anybody?")
        script.sent()
        started = script.now
        script.wait(3.9)
        assert state_of(connection) is State.ESTABLISHED
        assert script.shape(script.wait(0.2)) == [("RA", 9, 1, 0)]
        assert connection.error == errno.ETIMEDOUT
        assert connection.error_message == "10.77.0.2:80 did not answer for 4.0 s"
        assert script.now - started < 4.2

    def test_progress_restarts_the_user_timeout(self, script: Script) -> None:
        connection = script.established()
        connection.set_user_timeout(4.0)
        connection.send(bytes(10_000))
        for index in range(9):
            script.wait(3)
            script.receive(ACK, 1, 1 + 1000 * (index + 1))
        assert state_of(connection) is State.ESTABLISHED

    def test_keepalive_detects_a_lost_peer(self, script: Script) -> None:
        connection = script.established()
        connection.set_keepalive((10.0, 2.0, 3), script.now)
        assert script.wait(9.9) == []
        assert script.shape(script.wait(5)) == [("A", 0, 1, 0)] * 3
        assert script.shape(script.wait(2)) == [("RA", 1, 1, 0)]
        assert connection.error == errno.ETIMEDOUT
        assert connection.error_message == "10.77.0.2:80 did not answer for 16.0 s"

    def test_keepalive_detects_a_lost_peer_with_data_in_flight(self, script: Script) -> None:
        connection = script.established()
        connection.set_keepalive((10.0, 2.0, 3), script.now)
        connection.send(b"anybody?")
        script.wait(15.9)
        assert state_of(connection) is State.ESTABLISHED
        script.wait(0.2)
        assert connection.error == errno.ETIMEDOUT

    def test_short_intervals_have_several_probes(self, script: Script) -> None:
        connection = script.established()
        connection.set_keepalive((1.0, 1.0, 2), script.now)
        assert script.shape(script.wait(2.9)) == [("A", 0, 1, 0)] * 8
        assert script.shape(script.wait(0.2)) == [("RA", 1, 1, 0)]
        assert connection.error_message == "10.77.0.2:80 did not answer for 3.0 s"

    def test_keepalive_answered(self, script: Script) -> None:
        connection = script.established()
        connection.set_keepalive((10.0, 2.0, 3), script.now)
        for _ in range(20):
            assert len(script.wait(10.1)) == 1
            script.receive(ACK, 1, 1)
        assert state_of(connection) is State.ESTABLISHED

    def test_keepalive_answered_when_the_daemon_is_late(self, script: Script) -> None:
        """An answered probe must not count as unanswered, however soon the next one follows."""
        connection = script.established()
        connection.set_keepalive((1.0, 1.0, 2), script.now)
        probes = 0
        for _ in range(20):
            script.now += 1.5
            probes += len(script.wait(0))
            script.receive(ACK, 1, 1)
        assert state_of(connection) is State.ESTABLISHED
        assert probes >= 15

    @pytest.mark.parametrize("settings", [(0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0)])
    def test_keepalive_times_are_positive(self, script: Script, settings: tuple[float, float, int]) -> None:
        with pytest.raises(ValueError, match="positive"):
            script.established().set_keepalive(settings, script.now)

    def test_keepalive_switched_off(self, script: Script) -> None:
        connection = script.established()
        connection.set_keepalive((10.0, 2.0, 3), script.now)
        connection.set_keepalive(None, script.now)
        assert script.wait(1000) == []


class TestLossyPaths:
    """300 ms each way, 5 % loss: connections of ranks (transport.py) end for a dead peer alone, within 5 s."""

    def pair(self, seed: int) -> tuple[Lab, Connection, Connection]:
        lab = Lab(Wire(delay_s=0.3, loss=0.05), seed)
        one, other = lab.pair()
        for each in (one, other):
            each.set_user_timeout(USER_TIMEOUT_MS / 1000)
        return lab, one, other

    @pytest.mark.parametrize("seed", range(4))
    def test_an_idle_peer_is_not_lost(self, seed: int) -> None:
        """In ten minutes, of probes once a second, two one after the other would be lost several times."""
        lab, one, other = self.pair(seed)
        idle_s, interval_s, count = KEEPALIVE_S
        one.set_keepalive((float(idle_s), float(interval_s), count), lab.now)
        lab.run(limit_s=600)
        assert (state_of(one), state_of(other)) == (State.ESTABLISHED, State.ESTABLISHED)

    @pytest.mark.parametrize("seed", range(4))
    def test_messages_arrive_that_timers_alone_repeat(self, seed: int) -> None:
        lab, one, other = self.pair(seed)
        received = 0
        for _ in range(400):
            one.send(b"header")
            lab.run(limit_s=4)
            received += len(other.recv(1 << 10))
        assert (state_of(one), received) == (State.ESTABLISHED, 400 * len(b"header"))

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("message", [b"", b"header"])
    def test_a_dead_peer_is_noticed(self, seed: int, message: bytes) -> None:
        lab, one, _ = self.pair(seed)
        idle_s, interval_s, count = KEEPALIVE_S
        one.set_keepalive((float(idle_s), float(interval_s), count), lab.now)
        lab.run(limit_s=10)
        lab.b.deaf = True
        one.send(message)
        died = lab.now
        assert lab.run(lambda: one.ended, limit_s=5)
        assert one.error == errno.ETIMEDOUT
        assert lab.now - died > 1.5
