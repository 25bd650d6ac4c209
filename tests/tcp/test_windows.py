"""Flow control: zero windows, probes, silly windows, Nagle, and buffers."""

from __future__ import annotations

import errno

import pytest

from softnic.packet.segment import Options, Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Closed, Readable, Writable
from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.script import ACK, FIN, MSS, PSH, SYN, Script, state_of


class TestPeersWindow:
    def test_no_more_than_it_takes(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, window=2500)
        connection.send(bytes(9000))
        assert script.shape(script.sent()) == [("A", 1, 1, 2000)]
        assert script.shape(script.receive(ACK, 1, 2001, window=2500)) == [("A", 2001, 1, 2000)]

    def test_what_waits_and_what_was_sent_are_counted_apart(self, script: Script) -> None:
        connection = script.established()

        def queued() -> tuple[int, int]:
            info = connection.info(script.now)
            return info.send_queue, info.notsent

        script.receive(ACK, 1, 1, window=2500)
        connection.send(bytes(2700))
        assert (queued(), script.sent() and queued()) == ((2700, 2700), (2700, 700))
        script.receive(ACK, 1, 1001, window=2500)
        assert queued() == (1700, 0)
        connection.shutdown_write()
        script.sent()
        assert queued() == (1700, 0)
        script.receive(ACK, 1, 2702)
        assert queued() == (0, 0)

    def test_it_counts_from_what_is_acknowledged(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, window=4000)
        connection.send(bytes(9000))
        assert sum(len(s.payload) for s in script.sent()) == 4000
        assert sum(len(s.payload) for s in script.receive(ACK, 1, 1001, window=4000)) == 1000

    def test_an_ack_stays_within_a_window_that_was_taken_back(self, script: Script) -> None:
        """Where the peer would not look at what lies right of it."""
        connection = script.established()
        connection.send(bytes(4000))
        script.sent()
        script.receive(ACK, 1, 1, window=1000)
        assert script.shape(script.receive(ACK, 1, 1, b"x", window=1000)) == [("A", 1001, 2, 0)]

    def test_the_rest_of_the_congestion_window_takes_a_short_frame(self, script: Script) -> None:
        connection = script.established()
        flow(connection).cwnd = MSS + 54 + 400
        connection.send(bytes(MSS))
        script.sent()
        connection.send(bytes(300))
        assert script.shape(script.sent()) == [("PA", 1001, 1, 300)]

    def test_a_reset_lies_behind_all_that_was_sent(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(500))
        script.sent()
        connection.abort(script.now)
        assert script.shape(script.sent()) == [("RA", 501, 1, 0)]

    def test_an_older_segment_does_not_change_it(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1001, 1, window=4000)  # newer, out of order
        script.receive(ACK, 1, 1, window=1000)
        connection.send(bytes(9000))
        assert sum(len(s.payload) for s in script.sent()) == 4000

    def test_a_segment_from_further_left_changes_it_if_it_acknowledges_something(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1001, 1, window=5000)  # of what comes again below, after the peer's timeout
        connection.send(bytes(9000))
        assert sum(len(s.payload) for s in script.sent()) == 5000
        assert script.receive(ACK, 1, 5001, window=0) == []

    def test_scaling(self, script: Script) -> None:
        connection = script.accept(window_scale=3)
        assert flow(connection).snd_wnd == 65535 << 3

    def test_ours_is_scaled_once_the_handshake_is_over(self, script: Script) -> None:
        script.accept(window_scale=3)
        [ack] = script.receive(ACK, 1, 1, b"x")
        assert ack.window << 13 == pytest.approx(1 << 20, abs=1 << 13)

    def test_without_scaling_it_is_64_kib(self, script: Script) -> None:
        script.accept()
        [ack] = script.receive(ACK, 1, 1, b"x")
        assert ack.window == 65534


class TestZeroWindow:
    def shut(self, script: Script) -> None:
        self.connection = script.established()
        script.receive(ACK, 1, 1, window=0)
        self.connection.send(bytes(5000))
        assert script.sent() == []

    def test_probes_lie_left_of_the_window_and_back_off(self, script: Script) -> None:
        self.shut(script)
        start = script.now
        times = []
        for _ in range(4):
            time = script.host.next_time()
            assert time is not None
            script.now = time
            assert script.shape(script.sent()) == [("A", 0, 1, 0)]
            times.append(round(script.now - start, 2))
            script.receive(ACK, 1, 1, window=0)
        assert times == [0.2, 0.6, 1.4, 3.0]

    def test_an_open_window_lets_data_go(self, script: Script) -> None:
        self.shut(script)
        script.wait(1)
        assert script.shape(script.receive(ACK, 1, 1, window=4000)) == [("A", 1, 1, 4000)]
        assert flow(self.connection).rto_backoff == 0

    def test_answers_keep_it_alive_for_ever(self, script: Script) -> None:
        self.shut(script)
        self.connection.set_user_timeout(4.0)
        for _ in range(200):
            script.wait(0.5)
            script.receive(ACK, 1, 1, window=0)
        assert state_of(self.connection) is State.ESTABLISHED

    def test_silence_counts_from_when_there_was_something_to_send(self, script: Script) -> None:
        connection = script.established()
        connection.set_user_timeout(4.0)
        script.receive(ACK, 1, 1, window=0)
        script.wait(100)
        connection.send(bytes(5000))
        script.wait(3.9)
        assert state_of(connection) is State.ESTABLISHED
        script.wait(0.2)
        assert connection.error == errno.ETIMEDOUT
        assert connection.error_message == "10.77.0.2:80 did not answer for 4.0 s"

    def test_what_is_in_flight_is_repaired_though_the_window_is_too_small_for_more(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, window=2500)
        connection.send(bytes(9000))
        script.sent()
        assert script.shape(script.wait(0.25)) == [("A", 1, 1, 1000)]

    def test_half_of_the_largest_window_is_worth_a_segment(self, script: Script) -> None:
        """Of a peer whose buffer is smaller than a segment (RFC 9293, section 3.8.6.2.1)."""
        connection = script.connect()
        script.receive(SYN | ACK, 0, 1, window=400, options=Options(mss=MSS))
        connection.send(bytes(5000))
        assert script.shape(script.sent()) == [("A", 1, 1, 400)]
        assert script.receive(ACK, 1, 401, window=199) == []
        assert script.shape(script.receive(ACK, 1, 401, window=200)) == [("A", 401, 1, 200)]

    def test_silence_ends_it(self, script: Script) -> None:
        self.shut(script)
        self.connection.set_user_timeout(4.0)
        assert script.shape(script.wait(4.5))[-1] == ("RA", 1, 1, 0)
        assert self.connection.error == errno.ETIMEDOUT
        assert list(script.host.events) == [Closed(self.connection, errno.ETIMEDOUT)]

    def test_a_little_window_is_used_only_when_the_timer_says_so(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(5000))
        script.receive(ACK, 1, 1, window=5000)
        script.receive(ACK, 1, 5001, window=300)
        connection.send(bytes(5000))
        assert script.sent() == []
        assert script.shape(script.wait(0.25)) == [("A", 5001, 1, 300)]

    def test_a_fin_needs_window_too(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, window=0)
        connection.shutdown_write()
        assert script.sent() == []
        assert script.shape(script.wait(0.25)) == [("A", 0, 1, 0)]
        assert script.shape(script.receive(ACK, 1, 1, window=10)) == [("FA", 1, 1, 0)]

    def test_probes_of_ours_are_answered(self, script: Script) -> None:
        script.established()
        for _ in range(3):
            script.wait(0.2)
            assert script.shape(script.receive(ACK, 0, 1)) == [("A", 1, 1, 0)]

    def test_data_against_our_shut_window_is_dropped_but_its_ack_counts(self) -> None:
        script = Script(TcpConfig(receive_buffer=4000))
        connection = script.established()
        script.receive(ACK, 1, 1, bytes(4000))
        connection.send(b"abc")
        script.sent()
        assert script.shape(script.receive(ACK, 4001, 4, b"too much")) == [("A", 4, 4001, 0)]
        assert flow(connection).unread == 4000
        assert connection.info(script.now).bytes_sent == 3

    def test_an_ack_from_the_right_edge_of_our_window_counts(self) -> None:
        script = Script(TcpConfig(receive_buffer=4000))
        connection = script.established()
        edge = flow(connection).rcv_adv
        script.receive(ACK, edge - 2000, 1, bytes(2000))  # the peer has filled the window; what came first was lost
        connection.send(b"abc")
        script.sent()
        assert script.receive(ACK, edge, 4) == []
        assert connection.info(script.now).bytes_sent == 3
        connection.send(b"abc")
        script.sent()
        script.receive(ACK, edge + 1, 7)
        assert connection.info(script.now).bytes_sent == 3
        assert script.host.counters.dropped_sequence == 1

    def test_an_ack_lies_at_the_end_of_what_was_sent_though_some_is_sent_again(self, script: Script) -> None:
        script.established().send(bytes(3000))
        script.sent()
        assert script.shape(script.wait(0.25)) == [("A", 1, 1, 1000)]
        assert script.shape(script.receive(ACK, 1, 1, b"x")) == [("A", 3001, 2, 0)]

    def test_reading_opens_our_window_and_says_so(self) -> None:
        script = Script(TcpConfig(receive_buffer=4000))
        connection = script.established()
        [ack] = script.receive(ACK, 1, 1, bytes(4000))
        assert ack.window == 0
        connection.consume(100)
        assert script.sent() == []
        connection.consume(1900)
        [update] = script.sent()
        assert update.window == 2000


def test_super_segments_shorter_than_a_frame_wait_for_no_window() -> None:
    """The window is open, so no window update would follow."""
    script = Script(TcpConfig(super_segment=MSS // 2))
    script.established().send(bytes(2 * MSS))
    assert [len(segment.payload) for segment in script.sent()] == [MSS // 2] * 4


class TestNagle:
    def test_a_short_segment_waits_while_something_is_in_flight(self, script: Script) -> None:
        connection = script.established()
        connection.send(b"a")
        assert script.shape(script.sent()) == [("PA", 1, 1, 1)]
        connection.send(b"b")
        connection.send(b"c")
        assert script.sent() == []
        assert script.shape(script.receive(ACK, 1, 2)) == [("PA", 2, 1, 2)]

    def test_full_ones_do_not(self, script: Script) -> None:
        connection = script.established()
        connection.send(b"a")
        script.sent()
        connection.send(bytes(2500))
        assert script.shape(script.sent()) == [("A", 2, 1, 2000)]
        assert script.shape(script.receive(ACK, 1, 2002)) == [("PA", 2002, 1, 500)]

    def test_the_rest_of_a_long_write_does_not(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(2 * MSS))
        script.sent()
        connection.send(bytes(2500))
        assert script.shape(script.sent()) == [("PA", 2001, 1, 2500)]
        connection.send(b"a")
        assert script.sent() == []

    def test_nodelay(self, script: Script) -> None:
        connection = script.established()
        connection.set_nodelay(True)
        for index in range(3):
            connection.send(b"x")
            assert script.shape(script.sent()) == [("PA", 1 + index, 1, 1)]

    def test_a_range_that_ends_does_not_wait(self, script: Script) -> None:
        connection = script.established()
        connection.send(b"a")
        script.sent()
        connection.send(b"b")
        assert script.sent() == []
        connection.tag(Tag(0x10))
        connection.send(b"c")
        assert script.shape(script.sent()) == [("A", 2, 1, 1)]

    def test_fin_flushes(self, script: Script) -> None:
        connection = script.established()
        connection.send(b"a")
        script.sent()
        connection.send(b"b")
        connection.shutdown_write()
        assert script.shape(script.sent()) == [("FPA", 2, 1, 1)]


class TestBuffers:
    def test_a_full_send_buffer_tells_when_there_is_space(self) -> None:
        script = Script(TcpConfig(send_buffer=8000, send_buffer_max=8000))
        connection = script.established()
        assert connection.send(bytes(10_000)) == 8000
        script.sent()
        script.receive(ACK, 1, 1001)
        assert not script.host.events
        script.receive(ACK, 1, 2001)
        script.receive(ACK, 1, 3001)
        assert list(script.host.events) == [Writable(connection)]
        assert connection.send(bytes(10_000)) == 3000

    def test_no_events_for_space_nobody_waits_for(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(10_000))
        script.sent()
        script.receive(ACK, 1, 10_001)
        assert not script.host.events

    def test_readable_comes_once_until_something_is_read(self, script: Script) -> None:
        connection = script.established()
        for index in range(5):
            script.receive(ACK, 1 + index, 1, b"x")
        assert list(script.host.events) == [Readable(connection)]
        connection.recv(2)
        script.receive(ACK, 6, 1, b"x")
        script.receive(FIN | ACK, 7, 1)
        assert list(script.host.events) == [Readable(connection)] * 2
        assert connection.recv(10) == b"xxxx"
        assert connection.eof

    @pytest.mark.parametrize("odd", [0, 1, 700])
    def test_a_program_that_does_not_read_limits_what_is_received(self, script: Script, odd: int) -> None:
        """The window field counts units of 2 KiB, more than a segment: rounding up must not reopen a full window."""
        connection = script.accept(window_scale=3)
        [ack] = script.receive(ACK, 1, 1, bytes(1 + odd))
        total, capacity = 1 + odd, flow(connection).receive_capacity
        while total < 2 * capacity and ack.window << 13 >= MSS:
            total += MSS
            script.receive(ACK, total - MSS + 1, 1, bytes(MSS))
            [ack] = script.receive(ACK, 1, 1, b"x")  # old, so it is acknowledged at once
        assert capacity - MSS <= total <= capacity + (1 << 13) + MSS

    def test_nothing_can_be_written_after_shutdown(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        assert connection.send(b"x") == 0
        assert len(connection.write_space()) == 0

    def test_the_reassembly_queue_is_bounded(self) -> None:
        script = Script(TcpConfig(max_out_of_order=10))
        script.established()
        for index in range(20):
            script.receive(ACK, 10 + 2 * index, 1, b"x")
        assert script.host.counters.out_of_order == 10
        assert script.host.counters.dropped_reassembly == 10


def test_an_mss_of_the_peer_is_kept(script: Script) -> None:
    connection = script.connect()
    script.receive(SYN | ACK, 0, 1, options=Options(mss=500))
    assert flow(connection).mss == 500
    connection.send(b"x")
    script.sent()
    connection.send(bytes(700))  # of which only what fills a frame does not wait for the short segment's ACK
    assert script.shape(script.sent()) == [("A", 2, 1, 500)]


def test_push_goes_with_the_last_byte_written(script: Script) -> None:
    connection = script.established()
    connection.send(bytes(2 * MSS))
    [segment] = script.sent()
    assert segment.flags == PSH | ACK
