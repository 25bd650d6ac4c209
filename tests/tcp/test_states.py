"""SEGMENT ARRIVES, state by state (RFC 9293, section 3.10.7), against a peer written by hand."""

from __future__ import annotations

import errno

import pytest

from softnic.packet.segment import Flags, Options
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Closed, Established, Readable
from softnic.tcp.listener import AcceptReady
from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.script import ACK, FIN, MSS, PSH, RST, SYN, Script, state_of


class TestClosed:
    def test_a_segment_with_ack_gets_a_reset_at_its_ack(self, script: Script) -> None:
        assert script.shape(script.receive(ACK, 7, 9)) == [("R", 9, 0, 0)]

    def test_one_without_gets_a_reset_that_acknowledges_all_of_it(self, script: Script) -> None:
        script.dport = 81
        assert script.shape(script.receive(SYN, 0, data=b"abc")) == [("RA", 0, 4, 0)]

    def test_its_fin_too(self, script: Script) -> None:
        assert script.shape(script.receive(FIN, 0, data=b"abc")) == [("RA", 0, 4, 0)]

    def test_a_reset_gets_nothing(self, script: Script) -> None:
        assert script.receive(RST, 7, 9) == []
        assert script.host.counters.dropped_no_connection == 1


class TestListen:
    def test_syn(self, script: Script) -> None:
        listener = script.host.listen(0, 80, 5, script.now)
        [reply] = script.receive(SYN, 0, options=Options(mss=MSS, window_scale=3), timestamps=(77, 0))
        assert reply.flags == SYN | ACK
        assert reply.options == Options(mss=1460, window_scale=13)
        assert reply.timestamps is not None
        assert reply.timestamps[1] == 77
        assert listener.accept() is None

    def test_options_that_the_peer_does_not_offer_are_not_answered(self, script: Script) -> None:
        script.host.listen(0, 80, 5, script.now)
        [reply] = script.receive(SYN, 0, options=Options())
        assert reply.options == Options(mss=1460)
        assert reply.timestamps is None

    @pytest.mark.parametrize("flags", [ACK, SYN | ACK, FIN | ACK])
    def test_anything_with_ack_is_reset(self, script: Script, flags: int) -> None:
        script.host.listen(0, 80, 5, script.now)
        assert script.shape(script.receive(flags, 7, 9)) == [("R", 9, 0, 0)]

    def test_a_reset_is_ignored(self, script: Script) -> None:
        script.host.listen(0, 80, 5, script.now)
        assert script.receive(RST, 7, 9) == []

    @pytest.mark.parametrize("flags", [0, FIN, SYN | FIN, PSH, SYN | FIN | PSH])
    def test_what_scanners_send_gets_nothing_and_is_counted(self, script: Script, flags: int) -> None:
        script.host.listen(0, 80, 5, script.now)
        assert script.receive(flags, 7, 9, options=Options(mss=MSS)) == []
        assert script.host.counters.dropped_flags == 1
        assert script.host.tcp.connections == []

    def test_a_syn_with_fin_ends_no_time_wait(self, script: Script) -> None:
        script.host.listen(0, 80, 5, script.now)
        connection = script.established()
        script.receive(FIN | ACK, 1, 1)
        connection.shutdown_write()
        script.sent()
        old = script.host.tcp.connections
        script.receive(SYN | FIN, 1000, options=Options(mss=MSS))
        assert script.host.tcp.connections == old

    def test_connections_that_wait_elsewhere_count_for_the_backlog(self, script: Script) -> None:
        waiting: list[None] = []
        listener = script.host.listen(0, 80, 0, script.now, lambda: len(waiting))
        for replies in (1, 0):
            script.sport += 1
            assert len(script.receive(SYN, 0, options=Options(mss=MSS))) == replies
            waiting.append(None)
        assert (len(listener.half_open), script.host.counters.dropped_backlog) == (1, 1)

    def test_syns_beyond_the_backlog_are_dropped_and_counted(self, script: Script) -> None:
        listener = script.host.listen(0, 80, 1, script.now)
        for script.sport in range(6000, 6003):
            replies = script.receive(SYN, 0, options=Options(mss=MSS))
            for reply in replies:
                script.iss = reply.seq
                script.receive(ACK, 1, 1)
        assert len(listener.queue) == 2
        assert script.host.counters.dropped_backlog == 1
        listener.accept()
        script.sport = 6003
        assert len(script.receive(SYN, 0, options=Options(mss=MSS))) == 1

    def test_connections_beyond_the_backlog_stay_half_open_until_one_is_accepted(self, script: Script) -> None:
        """SYNs that arrive before the first handshake is over, as they do where a round trip takes long."""
        listener = script.host.listen(0, 80, 1, script.now)
        replies = {}
        for script.sport in range(6000, 6003):
            [replies[script.sport]] = script.receive(SYN, 0, options=Options(mss=MSS))
        for script.sport, reply in replies.items():
            script.iss = reply.seq
            assert script.receive(ACK, 1, 1) == []
        assert len(listener.queue) == 2
        assert script.host.counters.dropped_backlog == 1
        assert script.receive(ACK | PSH, 1, 1, b"not yet") == []
        assert listener.accept() is not None
        assert script.shape(script.receive(ACK | PSH, 1, 1, b"again")) == [("A", 1, 6, 0)]
        assert len(listener.queue) == 2
        assert script.host.counters.dropped_backlog == 2

    def test_half_open_connections_are_limited_too(self, script: Script) -> None:
        listener = script.host.listen(0, 80, 1, script.now)
        for script.sport in range(6000, 6000 + 130):
            script.receive(SYN, 0, options=Options(mss=MSS))
        assert len(listener.half_open) == 128
        assert script.host.counters.cookies_sent == 2

    def test_closing_resets_what_nobody_accepted(self, script: Script) -> None:
        listener = script.host.listen(0, 80, 5, script.now)
        [reply] = script.receive(SYN, 0, options=Options(mss=MSS))
        script.iss = reply.seq
        script.receive(ACK, 1, 1)
        listener.close(script.now)
        assert script.shape(script.sent()) == [("RA", 1, 1, 0)]
        assert script.host.tcp.connections == []


class TestSynSent:
    def test_syn_ack_establishes(self, script: Script) -> None:
        connection = script.connect()
        assert script.shape(script.receive(SYN | ACK, 0, 1, options=Options(mss=MSS))) == [("A", 1, 1, 0)]
        assert state_of(connection) is State.ESTABLISHED
        assert list(script.host.events) == [Established(connection)]
        assert flow(connection).mss == MSS

    @pytest.mark.parametrize("ack", [5, 0, -5])
    def test_an_ack_of_something_else_is_reset(self, script: Script, ack: int) -> None:
        connection = script.connect()
        assert script.shape(script.receive(SYN | ACK, 0, ack)) == [("R", ack, 0, 0)]
        assert state_of(connection) is State.SYN_SENT

    @pytest.mark.parametrize("flags", [ACK, FIN | ACK])
    def test_without_a_syn_nothing_is_established(self, script: Script, flags: int) -> None:
        connection = script.connect()
        assert script.receive(flags, 0, 1) == []
        assert state_of(connection) is State.SYN_SENT

    def test_closed_before_it_stood(self, script: Script) -> None:
        connection = script.connect()
        connection.send(b"all")
        connection.shutdown_write()
        assert state_of(connection) is State.SYN_SENT
        sent = script.receive(SYN | ACK, 0, 1, options=Options(mss=MSS))
        assert script.shape(sent) == [("FPA", 1, 1, 3)]
        assert state_of(connection) is State.FIN_WAIT_1
        script.receive(ACK, 1, 5)
        assert state_of(connection) is State.FIN_WAIT_2

    def test_the_first_window_is_ten_of_the_frames_agreed(self, script: Script) -> None:
        """RFC 6928."""
        assert flow(script.established()).cwnd == 10 * (MSS + 54)

    def test_a_syn_without_options_means_the_least(self, script: Script) -> None:
        connection = script.connect()
        script.receive(SYN | ACK, 0, 1)
        assert (flow(connection).mss, connection.use_sack, connection.use_timestamps) == (536, False, False)

    def test_a_reset_of_our_syn_refuses(self, script: Script) -> None:
        connection = script.connect()
        assert script.receive(RST | ACK, 0, 1) == []
        assert (connection.state, connection.error) == (State.CLOSED, errno.ECONNREFUSED)
        assert connection.error_message == "10.77.0.2:80 refused the connection"
        assert list(script.host.events) == [Closed(connection, errno.ECONNREFUSED)]

    @pytest.mark.parametrize(("flags", "ack"), [(RST, 1), (RST | ACK, 2)])
    def test_other_resets_are_ignored(self, script: Script, flags: int, ack: int) -> None:
        connection = script.connect()
        assert script.receive(flags, 0, ack) == []
        assert state_of(connection) is State.SYN_SENT

    def test_simultaneous_open(self, script: Script) -> None:
        connection = script.connect()
        [reply] = script.receive(SYN, 0, options=Options(mss=MSS))
        assert reply.flags == SYN | ACK
        assert state_of(connection) is State.SYN_RECEIVED
        script.receive(SYN | ACK, 0, 1, options=Options(mss=MSS))
        assert state_of(connection) is State.ESTABLISHED
        assert list(script.host.events) == [Established(connection)]

    def test_the_window_of_a_syn_ack_is_not_scaled_in_a_simultaneous_open_either(self, script: Script) -> None:
        """RFC 7323, section 2.2."""
        connection = script.connect()
        options = Options(mss=MSS, window_scale=5)
        script.receive(SYN, 0, options=options, window=1000)
        script.receive(SYN | ACK, 0, 1, options=options, window=1000)
        assert flow(connection).snd_wnd == 1000
        script.receive(ACK, 1, 1, window=1000)
        assert flow(connection).snd_wnd == 32_000

    def test_syns_are_repeated_with_backoff_and_given_up(self, script: Script) -> None:
        connection = script.connect()
        start = script.now
        times = []
        while connection.state is State.SYN_SENT:
            time = script.host.next_time()
            assert time is not None
            script.now = time
            if script.sent():
                times.append(script.now - start)
        assert times == [1, 3, 7, 15, 31]
        assert script.now - start == 60  # the user timeout comes first
        assert connection.error == errno.ETIMEDOUT
        assert connection.error_message == "10.77.0.2:80 did not answer for 60.0 s"

    def test_user_timeout_ends_it_sooner(self, script: Script) -> None:
        connection = script.connect()
        connection.set_user_timeout(4.0)
        assert len(script.wait(4.1)) == 2
        assert connection.error == errno.ETIMEDOUT

    def test_so_do_fewer_retries(self) -> None:
        script = Script(TcpConfig(syn_retries=2))
        connection = script.connect()
        assert len(script.wait(6.9)) == 2
        assert state_of(connection) is State.SYN_SENT
        assert script.wait(0.2) == []
        assert connection.error == errno.ETIMEDOUT

    def test_keepalive_waits_for_a_connection(self, script: Script) -> None:
        connection = script.connect()
        connection.set_keepalive((0.1, 0.1, 2), script.now)
        assert script.wait(0.9) == []
        assert state_of(connection) is State.SYN_SENT

    def test_bytes_written_early_follow_the_handshake(self, script: Script) -> None:
        connection = script.connect()
        connection.send(b"early")
        assert script.sent() == []
        sent = script.receive(SYN | ACK, 0, 1, options=Options(mss=MSS))
        assert script.shape(sent) == [("PA", 1, 1, 5)]


class TestSynReceived:
    def half_open(self, script: Script) -> None:
        self.listener = script.host.listen(0, 80, 5, script.now)
        [reply] = script.receive(SYN, 0, options=Options(mss=MSS))
        script.iss = reply.seq
        [self.connection] = self.listener.half_open

    def test_ack_establishes(self, script: Script) -> None:
        self.half_open(script)
        assert script.receive(ACK, 1, 1) == []
        assert state_of(self.connection) is State.ESTABLISHED
        assert list(script.host.events) == [AcceptReady(self.listener)]
        assert self.listener.accept() is self.connection

    def test_data_may_come_with_it(self, script: Script) -> None:
        self.half_open(script)
        assert script.shape(script.receive(ACK | PSH, 1, 1, b"hello")) == [("A", 1, 6, 0)]
        assert self.connection.recv(10) == b"hello"

    @pytest.mark.parametrize("ack", [3, 0, -3])
    def test_a_wrong_ack_is_reset(self, script: Script, ack: int) -> None:
        self.half_open(script)
        assert script.shape(script.receive(ACK, 1, ack)) == [("R", ack, 0, 0)]
        assert state_of(self.connection) is State.SYN_RECEIVED

    def test_the_syn_again_gets_the_syn_ack_again(self, script: Script) -> None:
        self.half_open(script)
        assert script.shape(script.receive(SYN, 0)) == [("SA", 0, 1, 0)]

    def test_a_reset_goes_back_to_listen_without_a_word(self, script: Script) -> None:
        self.half_open(script)
        script.receive(RST, 1)
        assert not self.listener.half_open
        assert not script.host.events
        assert script.host.tcp.connections == []

    def test_syn_acks_are_given_up(self, script: Script) -> None:
        self.half_open(script)
        assert script.shape(script.wait(70)) == [("SA", 0, 1, 0)] * 5
        assert not self.listener.half_open


class TestEstablished:
    def test_data_is_acknowledged_once_a_batch(self, script: Script) -> None:
        connection = script.established()
        script.feed(ACK, 1, 1, b"one")
        script.feed(ACK, 4, 1, b"two")
        assert script.shape(script.sent()) == [("A", 1, 7, 0)]
        assert connection.recv(10) == b"onetwo"
        assert list(script.host.events) == [Readable(connection)]

    def test_an_ack_goes_with_data_where_there_is_some(self, script: Script) -> None:
        connection = script.established()
        script.feed(ACK, 1, 1, b"ping")
        connection.send(b"pong")
        assert script.shape(script.sent()) == [("PA", 1, 5, 4)]

    def test_out_of_order_data_causes_a_duplicate_ack_a_frame(self, script: Script) -> None:
        script.established()
        assert script.shape(script.receive(ACK, 1001, 1, bytes(3000), frames=3)) == [("A", 1, 1, 0)] * 3
        assert script.shape(script.receive(ACK, 4001, 1, bytes(1000))) == [("A", 1, 1, 0)]
        assert script.shape(script.receive(ACK, 1, 1, bytes(1000))) == [("A", 1, 5001, 0)]

    def test_data_first_then_what_is_out_of_order(self, script: Script) -> None:
        script.established()
        script.feed(ACK, 1, 1, bytes(1000))
        script.feed(ACK, 2001, 1, bytes(2000), frames=2)
        assert script.shape(script.sent()) == [("A", 1, 1001, 0)] * 3

    def test_reordering_within_a_batch_causes_no_duplicates(self, script: Script) -> None:
        script.established()
        script.feed(ACK, 1001, 1, bytes(2000), frames=2)
        script.feed(ACK, 1, 1, bytes(1000))
        assert script.shape(script.sent()) == [("A", 1, 3001, 0)]

    def test_an_old_segment_is_acknowledged_again(self, script: Script) -> None:
        script.established()
        script.receive(ACK, 1, 1, b"12345")
        assert script.shape(script.receive(ACK, 1, 1, b"12345")) == [("A", 1, 6, 0)]
        assert script.host.counters.dropped_sequence == 1

    def test_what_is_new_of_a_segment_is_taken(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, b"12345")
        script.receive(ACK, 3, 1, b"34567")
        assert connection.recv(10) == b"1234567"

    def test_a_segment_right_of_the_window_is_dropped(self, script: Script) -> None:
        script.established()
        assert script.shape(script.receive(ACK, 10_000_000, 1, b"x")) == [("A", 1, 1, 0)]
        assert script.host.counters.dropped_sequence == 1

    def test_a_segment_without_ack_is_dropped(self, script: Script) -> None:
        connection = script.established()
        assert script.receive(0, 1, 0, b"x") == []
        assert not connection.received
        assert script.host.counters.dropped_ack == 1

    def test_an_ack_of_what_was_never_sent_is_challenged(self, script: Script) -> None:
        connection = script.established()
        assert script.shape(script.receive(ACK, 1, 2, b"x")) == [("A", 1, 1, 0)]
        assert not connection.received

    def test_an_ack_long_gone_is_challenged(self, script: Script) -> None:
        connection = script.established()
        assert script.shape(script.receive(ACK, 1, -70_000, b"x")) == [("A", 1, 1, 0)]
        assert not connection.received

    def test_an_ack_that_others_overtook_says_nothing_of_the_window(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(500))
        script.sent()
        script.receive(ACK, 1, 501, window=9000)
        script.receive(ACK, 1, 1, b"late", window=100)
        assert connection.recv(10) == b"late"
        assert flow(connection).snd_wnd == 9000

    def test_what_lies_right_of_the_window_acknowledges_nothing(self, script: Script) -> None:
        connection = script.established()
        connection.send(b"abc")
        script.sent()
        script.receive(ACK, 10_000_000, 4, b"x")
        assert connection.info(script.now).bytes_sent == 0

    def test_probes_of_the_peer_are_no_duplicate_acks(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(5 * MSS))
        script.sent()
        for _ in range(5):
            script.receive(ACK, 0, 1)
        assert script.host.counters.fast_retransmits == 0

    def test_one_segment_of_many_frames_causes_a_bounded_number_of_acks(self, script: Script) -> None:
        script.established()
        assert len(script.receive(ACK, 1001, 1, bytes(100_000), frames=100)) == 32

    def test_the_duplicate_of_a_segment_may_acknowledge(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, b"12345")
        connection.send(b"abc")
        script.sent()
        script.receive(ACK, 1, 4, b"12345")
        assert connection.info(script.now).bytes_sent == 3

    def test_a_reset_where_it_belongs_resets(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, b"last words")
        script.host.events.clear()
        assert script.receive(RST, 11) == []
        assert connection.error == errno.ECONNRESET
        assert connection.error_message == "10.77.0.2:80 reset the connection"
        assert list(script.host.events) == [Closed(connection, errno.ECONNRESET)]
        assert connection.recv(100) == b"last words"

    def test_a_reset_behind_the_end_of_stream_is_an_error_for_writers(self, script: Script) -> None:
        """As on Linux: readers see the end of stream, writers get the error."""
        connection = script.established()
        script.receive(ACK | FIN, 1, 1, b"last words")
        script.receive(RST, 12)
        assert connection.error == errno.EPIPE
        assert connection.recv(100) == b"last words"
        assert connection.recv(100) == b""

    def test_urgent_data_comes_in_its_place(self, script: Script) -> None:
        """As RFC 6093, section 5 has it, and as SO_OOBINLINE gives it to programs elsewhere."""
        connection = script.established()
        script.receive(ACK, 1, 1, b"be")
        script.receive(ACK | Flags.URG, 3, 1, b"for")
        script.receive(ACK, 6, 1, b"e")
        assert connection.recv(10) == b"before"

    def test_a_guessed_reset_is_challenged(self, script: Script) -> None:
        connection = script.established()
        assert script.shape(script.receive(RST, 2)) == [("A", 1, 1, 0)]
        assert state_of(connection) is State.ESTABLISHED
        assert script.host.counters.dropped_reset == 1

    def test_a_reset_outside_the_window_gets_nothing(self, script: Script) -> None:
        script.established()
        assert script.receive(RST, 10_000_000) == []
        assert script.receive(RST, 0) == []

    @pytest.mark.parametrize("number", [1, 100])
    def test_a_syn_is_challenged(self, script: Script, number: int) -> None:
        """Also the one whose number would do for a reset."""
        connection = script.established()
        assert script.shape(script.receive(SYN, number)) == [("A", 1, 1, 0)]
        assert state_of(connection) is State.ESTABLISHED

    def test_challenges_are_limited_in_rate(self, script: Script) -> None:
        script.established()
        answers = [len(script.receive(SYN, 100)) for _ in range(10)]
        assert sum(answers) == 1
        script.wait(0.06)
        assert len(script.receive(SYN, 100)) == 1

    def test_fin(self, script: Script) -> None:
        connection = script.established()
        assert script.shape(script.receive(FIN | ACK, 1, 1, b"bye")) == [("A", 1, 5, 0)]
        assert state_of(connection) is State.CLOSE_WAIT
        assert connection.eof
        assert connection.recv(10) == b"bye"

    def test_fin_before_what_precedes_it(self, script: Script) -> None:
        connection = script.established()
        script.receive(FIN | ACK, 4, 1)
        assert state_of(connection) is State.ESTABLISHED
        script.receive(ACK, 1, 1, b"bye")
        assert state_of(connection) is State.CLOSE_WAIT


class TestClosing:
    def test_fin_wait_1_to_2_to_time_wait(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        assert script.shape(script.sent()) == [("FA", 1, 1, 0)]
        assert state_of(connection) is State.FIN_WAIT_1
        script.receive(ACK, 1, 2)
        assert state_of(connection) is State.FIN_WAIT_2
        script.receive(ACK, 1, 2, b"more")
        assert connection.recv(10) == b"more"
        assert script.shape(script.receive(FIN | ACK, 5, 2)) == [("A", 2, 6, 0)]
        assert state_of(connection) is State.TIME_WAIT
        assert list(script.host.events)[-1] == Closed(connection, 0)

    def test_simultaneous_close(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        script.sent()
        assert script.shape(script.receive(FIN | ACK, 1, 1)) == [("A", 2, 2, 0)]
        assert state_of(connection) is State.CLOSING
        script.receive(ACK, 2, 2)
        assert state_of(connection) is State.TIME_WAIT

    def test_fin_that_acknowledges_ours(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        script.sent()
        script.receive(FIN | ACK, 1, 2)
        assert state_of(connection) is State.TIME_WAIT

    def test_passive_close(self, script: Script) -> None:
        connection = script.established()
        script.receive(FIN | ACK, 1, 1)
        connection.send(b"rest")
        connection.shutdown_write()
        assert script.shape(script.sent()) == [("FPA", 1, 2, 4)]
        assert state_of(connection) is State.LAST_ACK
        script.receive(ACK, 2, 6)
        assert state_of(connection) is State.CLOSED
        assert script.host.tcp.connections == []

    def test_a_lost_fin_is_sent_again(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        script.sent()
        assert script.shape(script.wait(0.25)) == [("FA", 1, 1, 0)]

    def test_data_after_the_peers_fin_is_ignored(self, script: Script) -> None:
        connection = script.established()
        script.receive(FIN | ACK, 1, 1)
        script.receive(ACK, 2, 1, b"zombie")
        assert not connection.received
        assert script.host.counters.dropped_flags == 1

    @pytest.mark.parametrize("state", [State.CLOSING, State.LAST_ACK])
    def test_a_reset_at_the_end_is_no_error(self, script: Script, state: State) -> None:
        connection = script.established()
        if state is State.CLOSING:
            connection.shutdown_write()
            script.sent()
            script.receive(FIN | ACK, 1, 1)
        else:
            script.receive(FIN | ACK, 1, 1)
            connection.shutdown_write()
            script.sent()
        assert state_of(connection) is state
        script.receive(RST, 2)
        assert (connection.state, connection.error) == (State.CLOSED, 0)

    @pytest.mark.parametrize("state", [State.CLOSE_WAIT, State.CLOSING, State.LAST_ACK, State.TIME_WAIT])
    def test_a_reset_with_the_number_of_the_fin(self, script: Script, state: State) -> None:
        """As macOS sends for a program that is killed (Linux, tcp_reset_check)."""
        connection = script.established()
        if state in (State.CLOSING, State.TIME_WAIT):
            connection.shutdown_write()
            script.sent()
        script.receive(FIN | ACK, 1, 2 if state is State.TIME_WAIT else 1)
        if state is State.LAST_ACK:
            connection.shutdown_write()
            script.sent()
        assert state_of(connection) is state
        assert script.receive(RST, 0) == []
        assert state_of(connection) is state
        assert script.receive(RST, 1) == []
        ended = state is not State.TIME_WAIT
        assert (state_of(connection) is State.CLOSED) is ended
        assert connection.error == (errno.EPIPE if state is State.CLOSE_WAIT else 0)
        assert script.host.counters.resets_received == ended


class TestOrphans:
    def test_what_is_written_is_still_sent(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(10_000))
        connection.close(script.now)
        lengths = [length for _, _, _, length in script.shape(script.sent())]
        assert sum(lengths) == 10_000

    def test_unread_bytes_make_it_a_reset(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, b"unread")
        connection.close(script.now)
        assert script.shape(script.sent()) == [("RA", 1, 7, 0)]
        assert state_of(connection) is State.CLOSED

    def test_data_for_nobody_is_reset(self, script: Script) -> None:
        connection = script.established()
        connection.close(script.now)
        script.sent()
        script.receive(ACK, 1, 2)
        assert state_of(connection) is State.FIN_WAIT_2
        assert script.shape(script.receive(ACK, 1, 2, b"hello?")) == [("RA", 2, 1, 0)]
        assert state_of(connection) is State.CLOSED

    def test_fin_wait_2_does_not_last_for_ever(self, script: Script) -> None:
        connection = script.established()
        connection.close(script.now)
        script.sent()
        script.receive(ACK, 1, 2)
        assert script.shape(script.wait(61)) == [("RA", 2, 1, 0)]
        assert state_of(connection) is State.CLOSED
        assert script.host.tcp.connections == []

    def test_but_an_owned_connection_may_wait_for_its_peer(self, script: Script) -> None:
        connection = script.established()
        connection.shutdown_write()
        script.sent()
        script.receive(ACK, 1, 2)
        script.wait(10_000)
        assert state_of(connection) is State.FIN_WAIT_2

    def test_a_peer_that_keeps_its_window_shut_does_not_keep_an_orphan(self, script: Script) -> None:
        connection = script.established()
        script.receive(ACK, 1, 1, window=0)
        connection.send(b"never")
        connection.close(script.now)
        for _ in range(200):
            script.wait(0.5)
            script.receive(ACK, 1, 1, window=0)
        assert state_of(connection) is State.CLOSED

    def test_one_that_makes_progress_lasts_as_long_as_it_takes(self, script: Script) -> None:
        connection = script.established()
        flow(connection).cwnd = 1 << 20
        connection.send(bytes(5 * MSS))
        connection.close(script.now)
        for number in range(1, 6):
            script.wait(40)
            script.receive(ACK, 1, 1 + number * MSS)
        assert state_of(connection) is State.FIN_WAIT_1

    def test_closing_in_syn_sent_just_forgets(self, script: Script) -> None:
        connection = script.connect()
        connection.close(script.now)
        assert script.sent() == []
        assert script.host.tcp.connections == []
