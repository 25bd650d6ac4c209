"""SYN floods: half-open connections are bounded; cookies admit peers that complete the handshake (RFC 4987)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softnic.packet.segment import Options, Segment, Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.listener import Listener
from softnic.tcp.state import State
from softnic.tcp.syn_cookies import PERIOD_S, SynCookies, stamp
from tests.tcp.flows import flow
from tests.tcp.lab import CODECS, Lab, Pump, accept
from tests.tcp.script import ACK, FIN, LOCAL, PEER, PSH, SYN, Script

LIMIT = 4


def flood(script: Script) -> Listener:
    """Fills the SYN queue with handshakes that are never completed."""
    listener = script.host.listen(0, 80, 1, script.now)
    for script.sport in range(6000, 6000 + LIMIT):
        script.receive(SYN, 0, options=Options(mss=1000))
    script.sport = 7000
    assert len(listener.half_open) == LIMIT
    return listener


@pytest.fixture
def script() -> Script:
    return Script(TcpConfig(half_open_limit=LIMIT))


class TestFlood:
    def test_nobody_is_remembered_beyond_the_limit(self, script: Script) -> None:
        listener = flood(script)
        for script.sport in range(10_000, 20_000):
            [reply] = script.receive(SYN, 0, options=Options(mss=1000))
            assert reply.flags == SYN | ACK
        assert len(listener.half_open) == len(script.host.tcp.connections) == LIMIT
        assert script.host.counters.cookies_sent == 10_000
        script.wait(100)
        assert script.host.next_time() is None

    def test_a_longer_backlog_is_the_limit(self, script: Script) -> None:
        listener = script.host.listen(0, 80, 2 * LIMIT, script.now)
        for script.sport in range(6000, 6000 + 3 * LIMIT):
            script.receive(SYN, 0, options=Options(mss=1000))
        assert len(listener.half_open) == 2 * LIMIT

    def test_a_connection_in_time_wait_may_be_followed_by_one_that_is_remembered(self, script: Script) -> None:
        old = script.accept()
        old.shutdown_write()
        script.sent()
        script.receive(FIN | ACK, 1, 2)
        assert old.state is State.TIME_WAIT
        listener = flood(script)
        script.sport = 5000
        [reply] = script.receive(SYN, 500, options=Options(mss=1000))
        assert reply.flags == SYN | ACK
        assert (len(listener.half_open), script.host.counters.cookies_sent) == (LIMIT + 1, 0)

    def test_it_ends_with_the_listener(self, script: Script) -> None:
        flood(script).close(script.now)
        assert script.host.tcp.connections == []
        assert len(script.sent()) == LIMIT

    def test_what_the_peer_does_not_offer_is_not_answered(self, script: Script) -> None:
        flood(script)
        [reply] = script.receive(SYN, 0, options=Options(mss=1000), timestamps=(77, 0))
        assert reply.options == Options(mss=1460, remembered=False)

    def test_who_answers_gets_in(self, script: Script) -> None:
        listener = flood(script)
        [reply] = script.receive(SYN, 0, options=Options(1300, 3, True, CODECS), timestamps=(77, 0))
        assert reply.options == Options(mss=1460, window_scale=13, sack_permitted=True, remembered=False)
        assert reply.timestamps is not None
        assert reply.timestamps[1] == 77
        script.iss = reply.seq
        sent = script.receive(ACK | PSH, 1, 1, b"hello", timestamps=(78, reply.timestamps[0]))
        connection = accept(listener)
        assert connection.recv(10) == b"hello"
        assert [segment.ack for segment in sent] == [0xFFFFFF00 + 6 & 0xFFFFFFFF]
        assert connection.state is State.ESTABLISHED
        assert connection.use_timestamps
        assert connection.use_sack
        assert (flow(connection).mss, flow(connection).send_scale) == (1220 - 12, 3)
        assert flow(connection).srtt == 0.0
        assert len(listener.half_open) == LIMIT
        connection.tag(Tag(0x28))  # to a peer that was told of no NIC: bytes, which need not be whole floats
        connection.send(b"xyz")
        [segment] = script.sent()
        assert (len(segment.payload), segment.path_mtu) == (3, 1260)

    def test_without_timestamps_there_is_no_scaling(self, script: Script) -> None:
        listener = flood(script)
        [reply] = script.receive(SYN, 0, options=Options(mss=1460, window_scale=3))
        assert reply.options == Options(mss=1460, remembered=False)
        script.iss = reply.seq
        script.receive(ACK, 1, 1, window=1000)
        connection = accept(listener)
        assert (flow(connection).snd_wnd, flow(connection).receive_scale, connection.use_timestamps) == (1000, 0, False)

    def test_a_wrong_answer_is_reset(self, script: Script) -> None:
        listener = flood(script)
        [reply] = script.receive(SYN, 0, options=Options(mss=1000))
        script.iss = reply.seq
        for seq, ack in ((1, 2), (2, 1), (1, 1 + (1 << 24))):
            assert script.shape(script.receive(ACK, seq, ack)) == [("R", ack, 0, 0)]
        script.sport += 1
        assert script.shape(script.receive(ACK, 1, 1)) == [("R", 1, 0, 0)]
        assert listener.accept() is None
        assert script.host.counters.cookies_accepted == 0

    def test_a_late_answer_is_reset(self, script: Script) -> None:
        flood(script)
        [reply] = script.receive(SYN, 0, options=Options(mss=1000))
        script.iss = reply.seq
        script.now += 2 * PERIOD_S
        assert script.shape(script.receive(ACK, 1, 1)) == [("R", 1, 0, 0)]

    def test_one_of_the_next_period_is_not(self, script: Script) -> None:
        listener = flood(script)
        [reply] = script.receive(SYN, 0, options=Options(mss=1000))
        script.iss = reply.seq
        script.now += 1.3 * PERIOD_S
        script.receive(ACK, 1, 1)
        assert accept(listener).state is State.ESTABLISHED

    def test_without_a_flood_no_ack_is_looked_at(self, script: Script) -> None:
        script.host.listen(0, 80, 1, script.now)
        syn = Segment(PEER, LOCAL, 7000, 80, 0xFFFFFF00, 0, SYN, options=Options(mss=1000))
        script.iss = script.host.tcp.cookies.number(syn, script.now)
        script.sport = 7000
        assert script.shape(script.receive(ACK, 1, 1)) == [("R", 1, 0, 0)]

    def test_nobody_accepts(self, script: Script) -> None:
        listener = flood(script)
        replies = {}
        for script.sport in range(7000, 7004):
            [replies[script.sport]] = script.receive(SYN, 0, options=Options(mss=1000))
        for script.sport, reply in replies.items():
            script.iss = reply.seq
            assert script.receive(ACK, 1, 1) == []
        assert (len(listener.queue), script.host.counters.dropped_backlog) == (2, 2)
        assert listener.accept() is not None
        assert script.shape(script.receive(ACK | FIN, 1, 1, b"again")) == [("A", 1, 7, 0)]  # of the last one
        assert len(listener.queue) == 2

    def test_transfers_under_a_flood(self) -> None:
        """On a network of hosts, all connections are made by cookies and transfer their data intact."""
        lab = Lab(config=TcpConfig(half_open_limit=0))
        listener = lab.b.host.listen(0, 80, 0, lab.now)
        for _ in range(5):
            client = lab.a.host.connect(lab.b.ip, 80, lab.now)
            assert lab.run(lambda: bool(listener.queue))
            pump = Pump(client, accept(listener), lab.rng.randbytes(300_000))
            assert lab.run(pump)
            assert bytes(pump.got) == bytes(pump.data)
        assert lab.b.host.counters.cookies_accepted == 5


class TestCookies:
    SYN = Segment(PEER, LOCAL, 5000, 80, 1234, 0, SYN, options=Options(mss=1460))

    def answer(self, number: int, **changed: int) -> Segment:
        segment = Segment(PEER, LOCAL, 5000, 80, 1235, (number + 1) & 0xFFFFFFFF, ACK)
        for name, value in changed.items():
            setattr(segment, name, value)
        return segment

    @pytest.mark.parametrize(
        ("mss", "kept"), [(100, 536), (536, 536), (999, 776), (1000, 1000), (1460, 1460), (9000, 1460)]
    )
    def test_the_mss_is_kept_or_a_lower_one(self, mss: int, kept: int) -> None:
        cookies = SynCookies(b"secret")
        syn = Segment(PEER, LOCAL, 5000, 80, 1234, 0, SYN, options=Options(mss=mss))
        offer = cookies.opened(self.answer(cookies.number(syn, 0.0)), 0.0)
        assert offer is not None
        assert offer.mss == kept

    def test_it_is_good_for_two_periods(self) -> None:
        cookies = SynCookies(b"secret")
        number = cookies.number(self.SYN, 10.0)
        good = [cookies.opened(self.answer(number), now) is not None for now in (10.0, 64.0, 127.0, 128.0, 2048.0)]
        assert good == [True, True, True, False, False]

    def test_24_bits_are_not_to_be_guessed(self) -> None:
        cookies = SynCookies(b"secret")
        found = set()
        for port in range(1000):
            found.add(cookies.number(replace(self.SYN, sport=port), 0.0) & 0xFFFFFF)
        assert len(found) > 990
        assert len({number >> 16 for number in found}) > 200

    def test_it_is_of_these_addresses_ports_and_numbers_and_of_this_node(self) -> None:
        cookies = SynCookies(b"secret")
        number = cookies.number(self.SYN, 0.0)
        for field in ("src", "dst", "sport", "dport", "seq", "ack"):
            answer = self.answer(number)
            setattr(answer, field, getattr(answer, field) + 1)
            assert cookies.opened(answer, 0.0) is None
        assert SynCookies(b"another").opened(self.answer(number), 0.0) is None

    @pytest.mark.parametrize("value", [0, 5, 15, 16, 12345, 0xFFFFFFFF])
    @pytest.mark.parametrize("scale", [None, 0, 14])
    @pytest.mark.parametrize("sack", [False, True])
    def test_a_stamp_is_never_from_the_future(self, value: int, scale: int | None, sack: bool) -> None:
        options = Options(window_scale=scale, sack_permitted=sack)
        syn = Segment(PEER, LOCAL, 5000, 80, 1234, 0, SYN, options=options, timestamps=(1, 0))
        marked = stamp(value, syn)
        assert (value - marked) & 0xFFFFFFFF < 32
        answer = self.answer(SynCookies(b"s").number(syn, 0.0))
        answer.timestamps = (2, marked)
        offer = SynCookies(b"s").opened(answer, 0.0)
        assert offer is not None
        assert (offer.window_scale, offer.sack_permitted) == (scale, sack)
