"""Delayed ACKs that are piggybacked on a reply, and ACKs that must not be delayed."""

from __future__ import annotations

import pytest

from softnic.packet.segment import Segment
from softnic.tcp.config import TcpConfig
from softnic.tcp.delayed_ack import NEVER, DelayedAck
from tests.tcp.flows import flow
from tests.tcp.lab import Lab, Wire
from tests.tcp.script import ACK, FIN, MSS, PSH, Script

DELAY = 0.01


@pytest.fixture
def script() -> Script:
    """Return a connection on which one request was answered, so that a reply to the next is expected."""
    script = Script()
    connection = script.established()
    assert script.shape(script.receive(PSH | ACK, 1, 1, b"q")) == [("A", 1, 2, 0)]
    connection.send(b"a")
    assert script.shape(script.sent()) == [("PA", 1, 2, 1)]
    script.receive(ACK, 2, 2)
    return script


class TestHeld:
    def test_the_reply_carries_the_ack(self, script: Script) -> None:
        assert script.receive(PSH | ACK, 2, 2, b"q") == []
        script.connection.send(b"a")
        assert script.shape(script.sent()) == [("PA", 2, 3, 1)]
        assert script.wait(0.1) == []

    def test_the_ack_is_sent_alone_when_the_delay_expires(self, script: Script) -> None:
        script.receive(PSH | ACK, 2, 2, b"q")
        assert script.wait(DELAY * 0.99) == []
        assert script.shape(script.wait(DELAY * 0.02)) == [("A", 2, 3, 0)]
        assert script.wait(1) == []

    def test_the_delay_starts_with_the_first_unacknowledged_byte(self, script: Script) -> None:
        script.receive(PSH | ACK, 2, 2, b"q")
        script.wait(DELAY * 0.9)
        assert script.receive(PSH | ACK, 3, 2, b"q") == []
        assert script.shape(script.wait(DELAY * 0.11)) == [("A", 2, 4, 0)]

    def test_a_retransmission_carries_the_ack(self, script: Script) -> None:
        connection = script.connection
        connection.send(b"a")
        script.sent()
        script.wait(flow(connection).rto - 0.005)
        assert script.receive(PSH | ACK, 2, 2, b"q") == []
        assert script.shape(script.wait(DELAY * 0.9)) == [("PA", 2, 3, 1)]

    def test_reading_sends_no_ack(self, script: Script) -> None:
        script.receive(PSH | ACK, 2, 2, b"question")
        assert script.connection.recv(100) == b"qquestion"
        assert script.sent() == []

    def test_a_connection_that_ends_during_the_delay_leaves_no_timer(self, script: Script) -> None:
        script.receive(PSH | ACK, 2, 2, b"q")
        script.connection.abort(script.now)
        script.sent()
        assert script.wait(1) == []


class TestAtOnce:
    def test_the_first_segment_of_a_connection(self) -> None:
        script = Script()
        script.established()
        for index in range(20):
            sent = script.receive(ACK, 1 + index * MSS, 1, bytes(MSS))
            assert script.shape(sent) == [("A", 1, 1 + (index + 1) * MSS, 0)]

    def test_every_second_full_sized_segment(self, script: Script) -> None:
        at = 2
        for _ in range(20):
            assert script.receive(ACK, at, 2, bytes(MSS)) == []
            assert script.shape(script.receive(ACK, at + MSS, 2, bytes(MSS))) == [("A", 2, at + 2 * MSS, 0)]
            at += 2 * MSS

    def test_frames_merged_by_the_nic(self, script: Script) -> None:
        assert script.shape(script.receive(ACK, 2, 2, bytes(2 * MSS), frames=2)) == [("A", 2, 2 + 2 * MSS, 0)]

    def test_the_last_part_of_a_message_of_many_frames(self, script: Script) -> None:
        script.receive(ACK, 2, 2, bytes(3 * MSS), frames=3)
        assert script.shape(script.receive(PSH | ACK, 2 + 3 * MSS, 2, b"rest")) == [("A", 2, 6 + 3 * MSS, 0)]
        script.connection.send(b"a")
        script.sent()
        assert script.receive(PSH | ACK, 6 + 3 * MSS, 3, b"q") == []

    def test_the_smallest_full_sized_segment(self, script: Script) -> None:
        assert script.receive(ACK, 2, 2, bytes(128)) == []
        assert len(script.receive(ACK, 130, 2, bytes(128))) == 1

    def test_short_segments_do_not_count_as_full_sized(self, script: Script) -> None:
        for index in range(10):
            assert script.receive(PSH | ACK, 2 + 64 * index, 2, bytes(64)) == []

    def test_out_of_order(self, script: Script) -> None:
        assert script.shape(script.receive(ACK, 102, 2, bytes(10))) == [("A", 2, 2, 0)]

    def test_data_that_fills_a_gap_or_a_part_of_one(self, script: Script) -> None:
        script.receive(ACK, 12, 2, bytes(10))
        script.receive(ACK, 32, 2, bytes(10))
        assert script.shape(script.receive(ACK, 2, 2, bytes(10))) == [("A", 2, 22, 0)]
        assert script.shape(script.receive(ACK, 22, 2, bytes(10))) == [("A", 2, 42, 0)]
        assert script.receive(ACK, 42, 2, bytes(10)) == []

    def test_duplicate_data(self, script: Script) -> None:
        script.receive(PSH | ACK, 2, 2, b"q")
        assert script.shape(script.receive(PSH | ACK, 2, 2, b"q")) == [("A", 2, 3, 0)]

    def test_fin(self, script: Script) -> None:
        assert script.shape(script.receive(FIN | PSH | ACK, 2, 2, b"q")) == [("A", 2, 4, 0)]

    def test_a_window_that_opens(self) -> None:
        script = Script(TcpConfig(receive_buffer=4000))
        connection = script.established()
        script.receive(PSH | ACK, 1, 1, b"q")
        connection.send(b"a")
        script.sent()
        assert script.receive(ACK, 2, 2, bytes(900)) == []
        connection.recv(1000)
        assert script.shape(script.sent()) == [("A", 2, 902, 0)]


class TestExpectations:
    """After a delay without a reply, ACKs are delayed only once replies have been seen again."""

    def ask(self, script: Script, at: int) -> list[Segment]:
        return script.receive(PSH | ACK, at, 2, b"q")

    def test_after_a_delay_without_a_reply_the_next_ack_is_immediate(self, script: Script) -> None:
        assert self.ask(script, 2) == []
        assert len(script.wait(1)) == 1
        for at in range(3, 20):
            assert len(self.ask(script, at)) == 1

    def test_each_delay_without_a_reply_doubles_the_replies_required(self) -> None:
        rule = DelayedAck(DELAY)
        now, in_vain = 0.0, []
        for _ in range(4):
            answers = 0
            while not rule.should_delay(1, 64, now):
                rule.on_pure_ack()
                rule.on_piggybacked(now + DELAY / 2)
                answers += 1
                now += 1
            rule.expired()
            in_vain.append(answers)
        assert in_vain == [1, 2, 4, 8]

    def test_a_late_reply_does_not_count(self) -> None:
        rule = DelayedAck(DELAY)
        for now in range(20):
            assert not rule.should_delay(1, 64, now)
            rule.on_pure_ack()
            rule.on_piggybacked(now + 1.1 * DELAY)

    def test_a_reply_of_several_segments_counts_once(self) -> None:
        rule = DelayedAck(DELAY)
        assert not rule.should_delay(1, 64, 0.0)
        rule.on_piggybacked(0.0)
        assert rule.should_delay(1, 64, 0.0)
        rule.expired()
        assert not rule.should_delay(1, 64, 1.0)
        rule.on_piggybacked(1.0)
        rule.on_piggybacked(1.0)
        assert not rule.should_delay(1, 64, 2.0)  # two are needed now

    def test_steady_replies_reset_the_replies_required(self) -> None:
        rule = DelayedAck(DELAY)
        for _ in range(5):
            rule.expired()
        for now in range(100):
            rule.should_delay(1, 64, now)
            rule.on_piggybacked(now)
        rule.expired()
        answers = 0
        while not rule.should_delay(1, 64, 1000.0):
            rule.on_piggybacked(1000.0)
            answers += 1
        assert answers <= 2
        assert rule.at != NEVER


def test_requests_and_replies_need_no_bare_acks() -> None:
    lab = Lab(Wire(delay_s=0.0001))
    client, server = lab.pair()
    for _ in range(100):
        client.send(bytes(64))
        assert lab.run(lambda: flow(server).unread == 64, 0.1)
        server.recv(64)
        server.send(bytes(64))
        assert lab.run(lambda: flow(client).unread == 64, 0.1)
        client.recv(64)
    assert sum(not s.payload for s in lab.a.sent + lab.b.sent) <= 3
    assert lab.elapsed < 0.1
    lab.run(limit_s=1)
    assert client.info(lab.now).bytes_sent == server.info(lab.now).bytes_sent == 6400


def test_short_messages_in_one_direction_are_acknowledged_at_once() -> None:
    """With Nagle's algorithm, each short segment waits for the ACK of the one before."""
    lab = Lab(Wire(delay_s=0.0001))
    client, server = lab.pair()
    for _ in range(100):
        client.send(bytes(64))
        assert lab.run(lambda: flow(server).unread == 64, 0.1)
        server.recv(64)
    assert lab.elapsed < 0.05


def test_a_request_in_two_writes_is_rarely_delayed() -> None:
    """Nagle at one end, delayed ACKs at the other: the second half waits for the ACK of the first."""
    lab = Lab(Wire(delay_s=0.0001))
    client, server = lab.pair()
    for _ in range(200):
        client.send(bytes(10))
        client.send(bytes(10))
        assert lab.run(lambda: flow(server).unread == 20, 1)
        server.recv(20)
        server.send(bytes(20))
        assert lab.run(lambda: flow(client).unread == 20, 1)
        client.recv(20)
    assert lab.elapsed < 200 * 0.0005 + 12 * DELAY


def test_a_peer_in_slow_start_never_waits_for_the_delay() -> None:
    """From one segment of window, as after a timeout: the window opens by what is acknowledged."""
    lab = Lab(Wire(delay_s=0.0001))
    client, server = lab.pair()
    flow(client).cwnd = flow(client).smss
    client.send(bytes(500_000))
    assert lab.run(lambda: flow(server).unread == 500_000, 1)
    assert lab.elapsed < DELAY
