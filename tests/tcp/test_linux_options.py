"""TCP_CORK, TCP_QUICKACK, TCP_MAXSEG, IP_TTL and SO_REUSEPORT, in virtual time."""

from __future__ import annotations

import pytest

from softnic.packet.segment import Options
from tests.tcp.flows import flow
from tests.tcp.script import ACK, MSS, SYN, Script


class TestCork:
    def test_only_full_segments_leave_at_once(self, script: Script) -> None:
        connection = script.established()
        connection.set_nodelay(True)
        connection.set_cork(True)
        connection.send(bytes(2 * MSS + 7))
        assert sum(len(segment.payload) for segment in script.sent()) == 2 * MSS

    def test_the_rest_leaves_after_200_ms(self, script: Script) -> None:
        connection = script.established()
        connection.set_cork(True)
        connection.send(b"short")
        assert script.sent() == []
        assert script.wait(0.19) == []
        [segment] = script.wait(0.02)
        assert bytes(segment.payload) == b"short"

    def test_the_rest_leaves_when_the_cork_is_removed(self, script: Script) -> None:
        connection = script.established()
        connection.set_cork(True)
        connection.send(b"short")
        assert script.sent() == []
        connection.set_cork(False)
        [segment] = script.sent()
        assert bytes(segment.payload) == b"short"

    def test_the_rest_leaves_with_the_end_of_the_stream(self, script: Script) -> None:
        connection = script.established()
        connection.set_cork(True)
        connection.send(b"short")
        connection.shutdown_write()
        [segment] = script.sent()
        assert bytes(segment.payload) == b"short"


class TestTimeToLive:
    def test_every_segment_has_it(self, script: Script) -> None:
        connection = script.established()
        connection.send(bytes(MSS))
        [segment] = script.sent()
        assert segment.ttl == 64
        connection.set_ttl(5)
        connection.send(bytes(MSS))
        [segment] = script.sent()
        assert segment.ttl == 5


class TestMaxseg:
    def test_an_established_connection_sends_shorter_segments(self, script: Script) -> None:
        connection = script.established()
        connection.set_max_segment(500, script.now)
        assert flow(connection).mss == 500
        assert connection.path_mtu == 540
        connection.set_max_segment(0, script.now)
        assert flow(connection).mss == MSS

    def test_a_listener_announces_it(self, script: Script) -> None:
        script.host.listen(0, 80, 5, script.now).set_packets(700, 9)
        [reply] = script.receive(SYN, 0, 0, options=Options(mss=MSS))
        assert reply.flags == SYN | ACK
        assert reply.options is not None
        assert (reply.options.mss, reply.ttl) == (700, 9)


class TestSharedPorts:
    def test_listeners_share_the_connections(self, script: Script) -> None:
        script.host.reserve(80, share=True)
        assert script.host.reserve(80, share=True) == 80
        listeners = [script.host.listen(0, 80, 40, script.now) for _ in range(2)]
        for script.sport in range(5000, 5032):
            [reply] = script.receive(SYN, 0, 0, options=Options(mss=MSS))
            script.iss = reply.seq
            script.receive(ACK, 1, 1)
        counts = [len(listener.queue) for listener in listeners]
        assert sum(counts) == 32
        assert min(counts) > 4

    def test_a_shared_port_is_free_once_all_have_released_it(self, script: Script) -> None:
        host = script.host
        for _ in range(2):
            host.reserve(80, share=True)
        with pytest.raises(OSError, match="in use"):
            host.reserve(80)
        for _ in range(2):
            host.release(80)
        assert host.reserve(80) == 80
        with pytest.raises(OSError, match="in use"):
            host.reserve(80, share=True)
