"""Loss recovery: single cases with a moving clock, then seeded matrices."""

from __future__ import annotations

import pytest

from softnic.packet.ethernet import mac_of
from softnic.packet.segment import Segment, Tag
from softnic.tcp import seq
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.rto import RetransmissionTimeout
from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.lab import TAGGED, Filter, Lab, Pump, Wire
from tests.tcp.script import ACK, MSS, SYN, Script


def starts(script: Script, segments: list[Segment]) -> list[int]:
    return [position for _, position, _, length in script.shape(segments) if length]


def flying(script: Script, frames: int) -> Connection:
    """Returns a connection with `frames` full frames in flight."""
    connection = script.established()
    flow(connection).cwnd = 1 << 20
    connection.send(bytes(frames * MSS))
    script.sent()
    return connection


class TestFastRetransmit:
    def test_fast_retransmit_at_the_third_duplicate(self, script: Script) -> None:
        flying(script, 10)
        assert [starts(script, script.receive(ACK, 1, 1)) for _ in range(4)] == [[], [], [1], []]
        assert script.host.counters.fast_retransmits == 1

    def test_merged_duplicates_are_counted_individually(self, script: Script) -> None:
        flying(script, 10)
        assert starts(script, script.receive(ACK, 1, 1, frames=3)) == [1]

    def test_an_ack_merged_with_its_duplicates(self, script: Script) -> None:
        flying(script, 10)
        assert starts(script, script.receive(ACK, 1, 1001, frames=4)) == [1001]

    def test_window_updates_are_not_duplicates(self, script: Script) -> None:
        flying(script, 10)
        for window in range(60_000, 60_010):
            assert script.receive(ACK, 1, 1, window=window) == []

    def test_segments_with_data_are_not_duplicates(self, script: Script) -> None:
        flying(script, 10)
        for index in range(5):
            assert starts(script, script.receive(ACK, 1 + index, 1, b"x")) == []

    def test_fast_retransmit_sends_one_frame(self, script: Script) -> None:
        flying(script, 10)
        [segment] = script.receive(ACK, 1, 1, frames=3)
        assert len(segment.payload) == MSS

    def test_the_window_is_reduced_to_seven_tenths_of_the_flight_in_wire_bytes(self, script: Script) -> None:
        connection = flying(script, 10)
        script.receive(ACK, 1, 1, frames=3)
        assert flow(connection).ssthresh == pytest.approx(0.7 * 10 * (MSS + 54), abs=2)

    def test_duplicates_are_counted_from_the_last_acknowledgement(self, script: Script) -> None:
        flying(script, 10)
        for _ in range(2):
            script.receive(ACK, 1, 1)
        script.receive(ACK, 1, 1001)
        assert starts(script, script.receive(ACK, 1, 1001)) == []

    def test_a_partial_ack_retransmits_regardless_of_the_window(self, script: Script) -> None:
        """RFC 6582, section 3.2: the first unacknowledged segment goes at once."""
        flying(script, 20)
        for _ in range(3):
            script.receive(ACK, 1, 1)
        assert starts(script, script.receive(ACK, 1, 1001)) == [1001]

    def test_no_fast_retransmit_of_data_sent_before_a_timeout(self, script: Script) -> None:
        """Retransmissions of what the peer had cause duplicates (RFC 6582, section 4)."""
        flying(script, 10)
        script.wait(0.25)
        script.receive(ACK, 1, 1001)
        assert [starts(script, script.receive(ACK, 1, 1001)) for _ in range(5)] == [[]] * 5
        assert script.host.counters.fast_retransmits == 0

    def test_partial_acks_repair_one_loss_each(self, script: Script) -> None:
        flying(script, 10)
        assert starts(script, script.receive(ACK, 1, 1, frames=3)) == [1]
        assert starts(script, script.receive(ACK, 1, 4001)) == [4001]
        assert starts(script, script.receive(ACK, 1, 7001)) == [7001]
        assert starts(script, script.receive(ACK, 1, 10_001)) == []

    def test_new_data_flows_during_recovery(self, script: Script) -> None:
        connection = flying(script, 10)
        flow(connection).cwnd = 10 * (MSS + 54)
        connection.send(bytes(50_000))
        script.receive(ACK, 1, 1, frames=3)
        new = [start for _ in range(6) for start in starts(script, script.receive(ACK, 1, 1))]
        # nine of ten have arrived: with the one sent again, as many leave as make the flight seven frames (RFC 6937)
        assert new == [10_001, 11_001, 12_001, 13_001, 14_001, 15_001]

    def test_limited_transmit(self, script: Script) -> None:
        connection = flying(script, 10)
        flow(connection).cwnd = 10 * (MSS + 54)
        connection.send(bytes(50_000))
        assert starts(script, script.receive(ACK, 1, 1)) == [10_001]
        assert starts(script, script.receive(ACK, 1, 1)) == [11_001]


class TestTimeout:
    def test_a_timeout_retransmits_everything_from_the_first_hole(self, script: Script) -> None:
        connection = flying(script, 10)
        assert starts(script, script.wait(0.25)) == [1]
        assert flow(connection).cwnd == MSS + 54
        assert starts(script, script.receive(ACK, 1, 1001)) == [1001]  # slow start: two frames
        assert flow(connection).snd_nxt == 10_001
        assert connection.info(script.now).retransmits == 2

    def test_acknowledged_data_is_not_retransmitted(self, script: Script) -> None:
        connection = flying(script, 10)
        script.wait(0.25)
        assert starts(script, script.receive(ACK, 1, 9001)) == [9001]
        assert flow(connection).snd_nxt == 10_001

    def test_the_timer_backs_off_and_is_reset(self, script: Script) -> None:
        connection = flying(script, 1)
        sent_at = []
        for _ in range(4):
            time = script.host.next_time()
            assert time is not None
            script.now = time
            assert starts(script, script.sent()) == [1]
            sent_at.append(round(script.now - 100, 3))
        assert sent_at == [0.2, 0.6, 1.4, 3.0]
        script.receive(ACK, 1, 1001)
        assert flow(connection).rto_backoff == 0

    def test_a_timer_that_was_backed_off_expires_when_the_peer_is_found_again(self, script: Script) -> None:
        connection = flying(script, 1)
        mac = mac_of(connection.peer[0])
        script.host.tcp.retry(mac, script.now)
        assert script.sent() == []  # nothing was lost yet
        for _ in range(3):
            time = script.host.next_time()
            assert time is not None
            script.now = time
            assert starts(script, script.sent()) == [1]
        script.now += 0.1
        script.host.tcp.retry(bytes(6), script.now)
        assert script.sent() == []
        script.host.tcp.retry(mac, script.now)
        assert script.host.next_time() == script.now
        assert starts(script, script.sent()) == [1]

    def test_repeated_timeouts_reduce_the_window_once(self, script: Script) -> None:
        connection = flying(script, 10)
        script.wait(3.1)
        assert flow(connection).ssthresh == pytest.approx(0.7 * 10 * (MSS + 54), abs=2)

    def test_an_ack_restarts_the_timer(self, script: Script) -> None:
        flying(script, 10)
        for acked in range(1001, 9002, 1000):
            assert script.wait(0.15) == []
            script.receive(ACK, 1, acked)

    def test_no_timer_without_data_in_flight(self, script: Script) -> None:
        flying(script, 1)
        script.receive(ACK, 1, 1001)
        assert script.wait(1000) == []


class TestRoundTripTime:
    def test_the_round_trip_time_is_measured(self, script: Script) -> None:
        connection = flying(script, 1)
        flow(connection).rto_estimator = RetransmissionTimeout(1.0, 0.2, 60.0)
        script.now += 0.030
        script.receive(ACK, 1, 1001)
        assert connection.info(script.now).srtt == pytest.approx(0.030)

    def test_acks_of_retransmitted_data_are_not_measured(self, script: Script) -> None:
        connection = flying(script, 1)
        flow(connection).rto_estimator = RetransmissionTimeout(1.0, 0.2, 60.0)
        script.wait(1.5)
        script.receive(ACK, 1, 1001)
        assert connection.info(script.now).srtt == 0.0

    def test_duplicate_acks_are_not_measured(self, script: Script) -> None:
        connection = flying(script, 10)
        before = flow(connection).srtt
        script.now += 0.1
        script.receive(ACK, 1, 1, frames=2)
        assert flow(connection).srtt == before

    @pytest.mark.parametrize("passive", [False, True])
    def test_a_retransmitted_handshake_is_not_measured(self, script: Script, passive: bool) -> None:
        if passive:
            listener = script.host.listen(0, 80, 5, script.now)
            [reply] = script.receive(SYN, 0, 0)
            script.iss = reply.seq
            [connection] = listener.half_open
        else:
            connection = script.connect()
        script.wait(1.5)
        script.receive(ACK if passive else SYN | ACK, int(passive), 1)
        assert connection.state is State.ESTABLISHED
        assert flow(connection).srtt == 0.0

    def again(self, script: Script) -> Connection:
        """Wait a second, in which data in flight is retransmitted."""
        connection = script.accept(timestamps=(1, 0))
        flow(connection).rto_estimator = RetransmissionTimeout(1.0, 0.2, 60.0)
        connection.send(bytes(500))
        script.sent()
        script.wait(1.01)
        assert connection.retransmits == 1
        return connection

    def test_an_echo_of_zero_is_ignored(self, script: Script) -> None:
        connection = self.again(script)
        script.receive(ACK, 1, 501, timestamps=(2, 0))
        assert flow(connection).srtt == 0.0

    def test_only_acks_of_new_data_are_measured(self, script: Script) -> None:
        """Otherwise an old echo would be measured (RFC 7323, section 4.1)."""
        connection = self.again(script)
        script.receive(ACK, 1, 1, frames=2, timestamps=(2, connection.timestamps.value(script.now - 0.5)))
        assert flow(connection).srtt == 0.0

    def test_timestamps_tell_which_copy_was_acknowledged(self, script: Script) -> None:
        connection = script.accept(timestamps=(1, 0))
        flow(connection).rto_estimator = RetransmissionTimeout(1.0, 0.2, 60.0)
        connection.send(bytes(500))
        script.sent()
        [again] = script.wait(1.0)
        assert again.timestamps is not None
        script.now += 0.040
        script.receive(ACK, 1, 501, timestamps=(2, again.timestamps[0]))
        assert connection.info(script.now).srtt == pytest.approx(0.040, abs=0.002)


class TestCompressedFlight:
    """One frame stands for 50,000 bytes of the stream."""

    def test_the_congestion_window_counts_frames(self) -> None:
        lab = Lab(Wire(ratio=50))
        client, _ = lab.pair()
        client.send(b"hello")  # the window of a SYN-ACK is not scaled; the ACK of this shows all of it
        lab.run(limit_s=0.01)
        lab.a.sent.clear()
        client.tag(Tag(TAGGED))
        client.send(bytes(4 << 20))
        lab.step()
        assert len([s for s in lab.a.sent if s.payload]) == 10
        assert flow(client).snd_nxt > 500_000
        assert flow(client).cwnd - flow(client).smss < client.info(lab.now).flight <= flow(client).cwnd

    def test_the_used_part_of_the_window_is_counted_in_frames(self) -> None:
        """A window with few frames in flight does not grow, however many bytes of the stream they hold."""
        lab = Lab(Wire(ratio=50))
        client, server = lab.pair()
        client.tag(Tag(TAGGED))
        for _ in range(20):
            client.send(bytes(200_000))
            lab.run(limit_s=0.1)
            server.recv(1 << 20)
        assert flow(client).cwnd == 10 * flow(client).smss

    def test_a_lost_frame_is_repaired_by_one_frame(self) -> None:
        lab = Lab(Wire(ratio=50))
        client, server = lab.pair()
        client.tag(Tag(TAGGED))
        lab.a.drop = once(number_of(client, 72_385))
        pump = Pump(client, server, bytes(2_000_000))
        assert lab.run(pump, limit_s=1)
        assert lab.a.host.counters.fast_retransmits == 1
        assert lab.a.host.counters.retransmission_timeouts == 0
        assert client.info(lab.now).retransmits == 1
        assert client.info(lab.now).ssthresh >= 2 * flow(client).smss


def number_of(connection: Connection, position: int) -> int:
    return seq.number(flow(connection).iss, position)


def once(number: int) -> Filter:
    """Returns a filter that loses the first frame with this sequence number."""
    lost: list[int] = []

    def drop(frame: Segment) -> bool:
        if lost or not frame.payload or (number - frame.seq) & 0xFFFFFFFF >= len(frame.payload):
            return False
        lost.append(frame.seq)
        return True

    return drop


def test_one_lost_frame_costs_about_a_round_trip() -> None:
    lab = Lab()
    client, server = lab.pair()
    start = lab.now
    clean = Pump(client, server, bytes(1_000_000), close=False)
    assert lab.run(clean)
    unharmed = lab.now - start
    lab.a.drop = once(number_of(client, 1_500_000))
    start = lab.now
    pump = Pump(client, server, bytes(1_000_000), close=False)
    assert lab.run(pump)
    assert lab.now - start < unharmed + 0.03
    assert lab.a.host.counters.retransmission_timeouts == 0


def test_half_a_window_lost_is_repaired_without_a_stall() -> None:
    lab = Lab()
    client, server = lab.pair()
    lost: set[int] = set()

    def drop(frame: Segment) -> bool:
        position = seq.position(flow(client).iss, frame.seq, flow(client).snd_una)
        burst = bool(frame.payload) and 300_000 < position < 340_000 and frame.seq not in lost
        if burst:
            lost.add(frame.seq)
        return burst

    lab.a.drop = drop
    pump = Pump(client, server, bytes(2_000_000))
    assert lab.run(pump, limit_s=2)
    assert len(lost) > 20


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.03, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ratio", [1, 7, 100])
def test_both_directions_arrive_unaltered_over_any_wire(loss: float, seed: int, ratio: int) -> None:
    lab = Lab(Wire(ratio=ratio), seed=seed)
    client, server = lab.pair()
    lab.wire.loss, lab.wire.duplicate, lab.wire.reorder = loss, 0.01, 0.05
    data = lab.rng.randbytes(200_001)
    for connection in (client, server):
        connection.tag(Tag(TAGGED), 50_003)
        connection.tag(Tag(), 150_002)
    there, back = Pump(client, server, data), Pump(server, client, data[::-1])
    assert lab.run(lambda: bool(there()) & bool(back()), limit_s=600)
    assert bytes(there.got) == data
    assert bytes(back.got) == data[::-1]
    lab.wire.loss = 0.0
    lab.run(limit_s=130)
    assert lab.a.host.tcp.connections == lab.b.host.tcp.connections == []


@pytest.mark.parametrize("seed", range(6))
def test_small_windows_and_slow_readers(seed: int) -> None:
    lab = Lab(Wire(ratio=3), seed=seed, config=TcpConfig(send_buffer=9000, receive_buffer=7000))
    client, server = lab.pair()
    lab.wire.loss, lab.wire.reorder = 0.05, 0.05
    client.tag(Tag(TAGGED), 20_001)
    data = lab.rng.randbytes(60_000)
    written, got = 0, bytearray()

    def turn() -> bool:
        nonlocal written, got
        if written < len(data):
            written += client.send(data[written : written + lab.rng.randrange(1, 5000)])
        else:
            client.shutdown_write()
        if lab.rng.random() < 0.2:
            got += server.recv(lab.rng.randrange(1, 4000))
        return len(got) == len(data) and server.eof

    while not lab.run(turn, limit_s=0.5):
        assert lab.elapsed < 600
    assert bytes(got) == data


def test_many_connections_share_a_wire_fairly() -> None:
    lab = Lab(Wire(room=100_000))
    pairs = [lab.pair(port) for port in range(5000, 5032)]
    pumps = [Pump(client, server, bytes(300_000)) for client, server in pairs]
    finished: list[float] = []

    def turn() -> bool:
        done = sum(bool(pump()) for pump in pumps)
        finished.extend([lab.now] * (done - len(finished)))
        return done == len(pumps)

    assert lab.run(turn)
    assert finished[-1] - finished[0] < 0.5 * (finished[-1])
