"""Buffer autotuning: growth with the use by path and application, the shared budget, and shrinking when idle."""

from __future__ import annotations

import pytest

from softnic.tcp.autotune import ReceiveTuning, SendTuning
from softnic.tcp.budget import Budget
from softnic.tcp.config import LARGEST_WINDOW, TcpConfig
from softnic.tcp.connection import Writable
from softnic.tcp.rcv import ReceiveState
from softnic.tcp.send_buffer import SendBuffer
from tests.tcp.flows import flow
from tests.tcp.lab import Lab, Pump, Wire
from tests.tcp.script import ACK, SYN, Script

KIB, MIB = 1 << 10, 1 << 20
SMALL = TcpConfig(send_buffer=64 * KIB, send_buffer_max=4 * MIB, receive_buffer=64 * KIB, receive_buffer_max=4 * MIB)


def transferred(config: TcpConfig, size: int, wire: Wire | None = None) -> tuple[Lab, Pump, float]:
    """Runs a transfer over a round trip of 20 ms; returns its virtual duration."""
    lab = Lab(wire or Wire(delay_s=0.01), config=config)
    client, server = lab.pair()
    pump = Pump(client, server, bytes(size), close=False)
    started = lab.now
    assert lab.run(pump)
    return lab, pump, lab.now - started


class TestRounds:
    """Dynamic right-sizing: four times the bytes read in a round trip of 10 ms, and four times the increase."""

    def after(self, elapsed_s: float, before: int = 100 * KIB, taken: int = 100 * KIB, largest: int = MIB) -> int:
        rcv, tuning = ReceiveState(64 * KIB, 10), ReceiveTuning(4 * MIB, Budget(16 * MIB))
        rcv.rcv_nxt, rcv.largest = 1, largest
        tuning.round(rcv, 1.0, 0.01, None)
        assert tuning.round_ends == pytest.approx(1.01)
        tuning.consumed = before
        rcv.rcv_nxt += taken
        tuning.round(rcv, 1.0 + elapsed_s, 0.01, None)
        assert tuning.consumed == taken
        return rcv.capacity

    def test_target_is_four_times_the_bytes_read(self) -> None:
        assert self.after(0.01) == pytest.approx(400 * KIB, abs=1)
        assert self.after(0.01, before=200 * KIB) == pytest.approx(400 * KIB, abs=1)

    def test_target_is_six_times_the_bytes_read_where_they_have_doubled(self) -> None:
        assert self.after(0.01, before=50 * KIB) == pytest.approx(600 * KIB, abs=1)

    def test_a_longer_interval_is_scaled_to_one_round_trip(self) -> None:
        assert self.after(0.02) == pytest.approx(200 * KIB, abs=1)

    def test_target_is_limited_by_the_window_field(self) -> None:
        assert self.after(0.01, taken=MIB) == MIB

    def test_a_shorter_round_trip_is_used_immediately(self) -> None:
        rcv, tuning = ReceiveState(64 * KIB, 10), ReceiveTuning(4 * MIB, Budget(16 * MIB))
        for now, echoed_s in ((1.0, 0.199), (2.0, 0.009)):
            tuning.round(rcv, now, 0.0, echoed_s)
        assert tuning.round_ends == pytest.approx(2.01)

    def test_a_send_buffer_doubles_once_a_round_trip(self) -> None:
        buffer, tuning = SendBuffer(64 * KIB), SendTuning(64 * KIB, 4 * MIB, Budget(16 * MIB))
        for delivered, pipe, size in ((0, 1000, 128), (500, 1500, 128), (1000, 2000, 256)):
            tuning.short(buffer, delivered, pipe)
            assert buffer.capacity == size * KIB


class TestWindow:
    def test_the_receive_buffer_grows_with_the_reads_of_a_round_trip(self) -> None:
        _, pump, took = transferred(SMALL, 8 * MIB)
        assert flow(pump.sink).receive_capacity >= 1 * MIB
        fixed = TcpConfig(send_buffer=4 * MIB, receive_buffer=64 * KIB, receive_buffer_max=64 * KIB)
        _, pump, slow = transferred(fixed, 8 * MIB)
        assert flow(pump.sink).receive_capacity == 64 * KIB
        assert slow == pytest.approx(8 * MIB / (64 * KIB) * 0.02, rel=0.1)  # one window per round trip
        assert took < slow / 4

    def test_the_receive_buffer_does_not_grow_while_nothing_is_read(self) -> None:
        lab = Lab(Wire(delay_s=0.01), config=SMALL)
        client, server = lab.pair()
        client.send(bytes(64 * KIB))
        lab.run(limit_s=5)
        client.send(bytes(64 * KIB))
        lab.run(limit_s=5)
        assert flow(server).receive_capacity == 64 * KIB
        assert flow(server).unread <= 64 * KIB + 2048  # the unit of the window field

    def test_the_receive_buffer_does_not_grow_with_occasional_short_messages(self) -> None:
        lab = Lab(Wire(delay_s=0.01), config=SMALL)
        client, server = lab.pair()
        for _ in range(50):
            client.send(bytes(4 * KIB))
            lab.run(limit_s=0.05)
            server.recv(1 << 20)
        assert flow(server).receive_capacity == 64 * KIB

    def test_growth_is_limited_by_the_budget_of_all_connections(self) -> None:
        config = TcpConfig(send_buffer=4 * MIB, receive_buffer=64 * KIB, buffer_memory=100 * KIB)
        lab, pump, _ = transferred(config, 4 * MIB)
        assert flow(pump.sink).receive_capacity <= 164 * KIB
        assert 0 <= lab.b.host.tcp.budget.free < 100 * KIB
        pump.source.abort(lab.now)
        lab.run(limit_s=1)
        assert lab.a.host.tcp.budget.free == lab.b.host.tcp.budget.free == 100 * KIB

    def test_without_window_scaling_the_buffer_is_limited_by_the_field(self) -> None:
        script = Script(SMALL)
        connection = script.accept()
        for index in range(100):
            script.receive(ACK, 1 + 8000 * index, 1, bytes(8000))
            connection.consume(8000)
            script.now += 0.0005
        assert flow(connection).receive_capacity == 0xFFFF

    def test_windows_of_a_gibibyte(self) -> None:
        script = Script(TcpConfig(receive_buffer=LARGEST_WINDOW, receive_buffer_max=LARGEST_WINDOW))
        connection = script.accept(window_scale=14)
        assert flow(connection).snd_wnd == LARGEST_WINDOW
        [ack] = script.receive(ACK, 1, 1, b"x")
        assert LARGEST_WINDOW - (1 << 14) <= ack.window << 14 <= LARGEST_WINDOW
        far = LARGEST_WINDOW - (2 << 14)
        script.receive(ACK, far, 1, b"at the far end of it")
        assert script.host.counters.out_of_order == 1

    def test_windows_over_a_gibibyte_are_rejected(self) -> None:
        with pytest.raises(ValueError, match="a buffer has"):
            TcpConfig(receive_buffer_max=LARGEST_WINDOW + 1)

    def test_a_scale_beyond_14_counts_as_14(self) -> None:
        """RFC 7323, section 2.3; the NIC's parser has the same limit."""
        assert flow(Script().accept(window_scale=200)).snd_wnd == 65535 << 14


class TestSendBuffer:
    def test_the_send_buffer_grows_while_all_of_it_is_in_flight(self) -> None:
        config = TcpConfig(send_buffer=64 * KIB, send_buffer_max=4 * MIB)
        _, pump, took = transferred(config, 8 * MIB)
        assert flow(pump.source).send_buffer.capacity >= 1 * MIB
        fixed = TcpConfig(send_buffer=64 * KIB, send_buffer_max=64 * KIB)
        _, pump, slow = transferred(fixed, 8 * MIB)
        assert flow(pump.source).send_buffer.capacity == 64 * KIB
        assert took < slow / 4

    def test_a_closed_connection_returns_its_growth_to_the_budget(self) -> None:
        script = Script(TcpConfig(send_buffer=8 * KIB, send_buffer_max=4 * MIB))
        connection = script.established()
        connection.send(bytes(10_000))
        script.sent()
        script.receive(ACK, 1, 1001)
        budget = script.host.tcp.budget
        assert budget.free == TcpConfig().buffer_memory - 8 * KIB
        connection.abort(script.now)
        assert budget.free == TcpConfig().buffer_memory

    def test_a_compressed_stream_gets_buffers_multiplied_by_its_ratio(self) -> None:
        """At a ratio of 8:1, buffer and window must hold eight times the wire bytes in flight."""
        from softnic.packet.segment import Tag

        def rate(ratio: int) -> float:
            lab = Lab(Wire(delay_s=0.01, ratio=ratio), config=TcpConfig(send_buffer=64 * KIB, receive_buffer=64 * KIB))
            client, server = lab.pair()
            client.tag(Tag(0x28))
            started = lab.now
            size = ratio * 4 * MIB
            assert lab.run(Pump(client, server, bytes(size), close=False))
            return size / (lab.now - started)

        assert rate(8) > 6 * rate(1)

    def test_the_send_buffer_does_not_grow_while_unsent_data_waits(self) -> None:
        script = Script(TcpConfig(send_buffer=8 * KIB, send_buffer_max=4 * MIB))
        connection = script.established()
        script.receive(ACK, 1, 1, window=4000)
        connection.send(bytes(10_000))
        script.sent()
        for ack in range(1001, 9001, 1000):
            script.receive(ACK, 1, ack, window=4000)
            connection.send(bytes(10_000))
        assert flow(connection).send_buffer.capacity == 8 * KIB

    def test_growth_of_the_send_buffer_makes_it_writable(self) -> None:
        script = Script(TcpConfig(send_buffer=8 * KIB, send_buffer_max=4 * MIB))
        connection = script.established()
        assert connection.send(bytes(10_000)) == 8 * KIB
        script.sent()
        script.receive(ACK, 1, 1001)
        assert list(script.host.events) == [Writable(connection)]
        assert connection.send(bytes(10_000)) == 8 * KIB + 1000

    def test_data_in_flight_survives_growth(self) -> None:
        script = Script(TcpConfig(send_buffer=8000, send_buffer_max=4 * MIB))
        connection = script.established()
        data = bytes(index % 251 for index in range(16_000))
        connection.send(data)
        script.sent()
        script.receive(ACK, 1, 2001)
        connection.send(data[8000:])
        assert flow(connection).send_buffer.capacity == 16_000
        assert bytes(flow(connection).send_buffer.view(2001, 16_001)) == data[2000:]


class TestIdle:
    def test_an_idle_connection_returns_memory(self) -> None:
        lab, pump, _ = transferred(SMALL, 8 * MIB)
        sender, receiver = flow(pump.source).send_buffer, flow(pump.sink).receive_buffer
        assert len(sender._memory) >= 2 * MIB
        lab.run(limit_s=25)
        assert (len(sender._memory), sender.capacity) == (0, 64 * KIB)
        assert not receiver.buffer.first
        assert lab.a.host.tcp.budget.free == SMALL.buffer_memory
        assert lab.next_time() is None
        pump.data = memoryview(bytes(9 * MIB))
        assert lab.run(pump)

    def test_memory_is_kept_while_messages_are_exchanged(self) -> None:
        lab = Lab(config=TcpConfig(trim_after_s=1.0))
        client, server = lab.pair()
        for _ in range(40):
            client.send(bytes(100))
            lab.run(limit_s=0.1)
            server.recv(100)
            assert len(flow(client).send_buffer._memory) > 0
        lab.run(limit_s=3)
        assert len(flow(client).send_buffer._memory) == 0

    def test_memory_of_unread_or_unacknowledged_data_is_kept(self) -> None:
        lab = Lab(config=TcpConfig(trim_after_s=1.0))
        client, server = lab.pair()
        client.send(b"unread")
        lab.run(limit_s=5)
        assert server.recv(10) == b"unread"
        client.send(b"unacknowledged")
        lab.b.deaf = True
        lab.run(limit_s=5)
        lab.b.deaf = False
        assert lab.run(lambda: bool(server.received))
        assert server.recv(20) == b"unacknowledged"


def test_the_window_of_a_syn_is_not_scaled() -> None:
    """The field of a SYN is never scaled (RFC 7323, section 2.2)."""
    script = Script()
    connection = script.connect()
    from softnic.packet.segment import Options

    script.receive(SYN | ACK, 0, 1, window=1000, options=Options(mss=1000, window_scale=14))
    assert flow(connection).snd_wnd == 1000
