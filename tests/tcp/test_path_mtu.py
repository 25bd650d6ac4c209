"""Path MTU: validation of ICMP messages, expiry, and frame sizes (RFC 1191; RFC 5927, section 7)."""

from __future__ import annotations

import random

import pytest

from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet import ethernet, icmp, ipv4
from softnic.packet.frames import Frames
from softnic.packet.segment import Options, Segment, Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.connection import Connection
from softnic.tcp.path_mtu import LEAST_PATH_MTU, update_mss
from softnic.tcp.pmtu_cache import LIFETIME_S, PathMtus
from tests.nic.nodes import Transfer
from tests.tcp.flows import flow
from tests.tcp.script import ACK, MSS, SYN, Script
from tests.tcp.test_icmp import ROUTER, TOO_LONG, tell


class TestPathMtu:
    def test_a_path_mtu_expires_after_ten_minutes(self) -> None:
        assert LIFETIME_S == 600

    def long(self, script: Script) -> tuple[Connection, Segment]:
        connection = script.established()
        connection.send(bytes(5 * MSS))
        [segment] = script.sent()
        return connection, segment

    def test_a_message_is_believed_if_the_segment_stays_unacknowledged(self, script: Script) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        assert flow(connection).mss == MSS
        again = script.wait(0.25)
        assert flow(connection).mss == 660
        assert again
        assert all(segment.path_mtu == 700 for segment in again)
        assert script.host.counters.path_mtus_lowered == 1

    def test_a_message_is_ignored_if_the_segment_is_acknowledged(self, script: Script) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        script.receive(ACK, 1, 5 * MSS + 1)
        script.wait(1)
        connection.send(bytes(100))
        [segment] = script.sent()
        assert (segment.path_mtu, flow(connection).mss) == (MSS + 40, MSS)

    def test_a_message_is_ignored_if_another_segment_is_lost_later(self, script: Script) -> None:
        """An acknowledged segment cannot have been too long (RFC 5927, section 7.2)."""
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        script.receive(ACK, 1, 5 * MSS + 1)
        connection.send(bytes(5 * MSS))
        script.sent()
        assert script.wait(0.25)
        assert (flow(connection).mss, script.host.counters.path_mtus_lowered) == (MSS, 0)

    @pytest.mark.parametrize("mtu", [1, 68, 551])
    def test_the_path_mtu_has_a_minimum(self, script: Script, mtu: int) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=mtu)
        script.wait(0.25)
        assert connection.path_mtu == LEAST_PATH_MTU

    def test_a_message_never_raises_the_path_mtu(self, script: Script) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=9000)
        tell(script, segment, TOO_LONG, mtu=1500)
        assert script.host.counters.dropped_icmp == 2
        assert connection.reported_mtu is None

    def test_a_message_without_an_mtu(self, script: Script) -> None:
        connection, segment = self.long(script)
        segment.payload = segment.payload[:1400]
        tell(script, segment, TOO_LONG)
        assert connection.reported_mtu == (1006, 1)

    def test_a_message_about_a_packet_of_a_plateau_size(self, script: Script) -> None:
        connection, segment = self.long(script)
        segment.payload = segment.payload[: 1006 - 40]
        tell(script, segment, TOO_LONG)
        assert connection.reported_mtu == (576, 1)

    def test_a_frame_holds_a_coding_block_whatever_the_peer_offers(self, script: Script) -> None:
        connection = script.connect()
        script.receive(SYN | ACK, 0, 1, options=Options(mss=1))
        assert flow(connection).mss == 160

    def test_other_connections_to_the_address_use_it_for_ten_minutes(self, script: Script) -> None:
        _, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        script.wait(0.25)
        assert flow(script.established()).mss == 660
        for connection in script.host.tcp.connections:
            connection.abort(script.now)
        script.sent()
        script.now += LIFETIME_S
        assert flow(script.established()).mss == MSS

    def test_an_established_connection_tries_longer_frames_after_ten_minutes(self, script: Script) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        script.wait(0.25)
        script.receive(ACK, 1, 5 * MSS + 1)
        for waits, mss in ((LIFETIME_S - 1, 660), (1, MSS)):
            script.now += waits
            connection.send(bytes(MSS))
            [segment] = script.sent()
            assert (segment.path_mtu, flow(connection).mss) == (mss + 40, mss)
            script.receive(ACK, 1, flow(connection).snd_nxt)

    def test_frames_become_short_again_if_the_longer_ones_are_still_too_long(self, script: Script) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        script.wait(0.25)
        script.receive(ACK, 1, 5 * MSS + 1)
        script.now += LIFETIME_S
        connection.send(bytes(5 * MSS))
        [segment] = script.sent()
        tell(script, segment, TOO_LONG, mtu=700)
        again = script.wait(0.25)
        assert again
        assert all(segment.path_mtu == 700 for segment in again)
        assert script.host.counters.path_mtus_lowered == 2

    def test_longer_frames_are_not_tried_if_another_connection_has_renewed_the_path_mtu(self, script: Script) -> None:
        connection, segment = self.long(script)
        tell(script, segment, TOO_LONG, mtu=700)
        script.wait(0.25)
        script.receive(ACK, 1, 5 * MSS + 1)
        script.host.tcp.path_mtus.note(connection.peer[0], 800, script.now + 60)
        script.now += LIFETIME_S
        connection.send(bytes(5 * MSS))
        [segment] = script.sent()
        assert (segment.path_mtu, flow(connection).mss) == (800, 760)

    def test_frame_sizes_are_the_same_for_known_and_discovered_paths(self, script: Script) -> None:
        stamped = [script.accept(timestamps=(1, 0))]
        script.host.tcp.path_mtus.note(stamped[0].peer[0], 700, script.now)
        update_mss(stamped[0], script.now)
        for connection in script.host.tcp.connections:
            connection.abort(script.now)
        script.sent()
        stamped.append(script.accept(timestamps=(1, 0)))
        for connection in stamped:
            assert (flow(connection).mss, flow(connection).smss, connection.path_mtu) == (648, 714, 700)

    def test_the_table_of_path_mtus_is_bounded(self) -> None:
        known = PathMtus()
        for address in range(5000):
            known.note(address, 600, 0.0)
        assert sum(known.get(address, 1.0) == (600, LIFETIME_S) for address in range(5000)) == 1024
        assert known.get(4999, 1.0)[0] == 600


class Narrow:
    """A router that drops packets above its next hop's MTU and reports so by ICMP."""

    def __init__(self, network: MemoryNetwork, mtu: int) -> None:
        self.mtu = mtu
        self.dropped = 0
        self.port = network.port()

    def filter(self, frames: Frames, now: float) -> Frames:
        kept = []
        for frame in frames:
            packet = frame[14:]
            if len(packet) <= self.mtu or packet[9] != ipv4.PROTOCOL_TCP:
                kept.append(frame)
                continue
            self.dropped += 1
            body = bytes([icmp.UNREACHABLE, TOO_LONG, 0, 0]) + self.mtu.to_bytes(4, "big") + packet[:28]
            body = body[:2] + ipv4.checksum(body).to_bytes(2, "big") + body[4:]
            source = int.from_bytes(packet[12:16], "big")
            answer = ipv4.build(ipv4.Packet(ROUTER, source, ipv4.PROTOCOL_ICMP, body))
            self.port.send(Frames.of([ethernet.build(frame[6:12], frame[:6], ethernet.TYPE_IPV4, answer)]), now)
        return Frames.of(kept)


@pytest.mark.parametrize("tos", [0, 0x28])
def test_a_stream_goes_through_a_narrow_router(monkeypatch: pytest.MonkeyPatch, tos: int) -> None:
    """Real NICs: frames sent after the router's message have the size that it reported."""
    network = MemoryNetwork()
    router = Narrow(network, 900)
    ends = [network.port(), network.port()]
    send = ends[0].send
    monkeypatch.setattr(ends[0], "send", lambda frames, now: send(router.filter(frames, now), now))
    nodes = [
        Node(ipv4.address(f"10.77.0.{1 + index}"), port, rng=random.Random(index), offloads={0x28: "truncate:32"})
        for index, port in enumerate(ends)
    ]
    data = random.Random(7).randbytes(400_000)
    program = Transfer(nodes[0], nodes[1], [(Tag(tos), data)])
    clock = VirtualClock()
    clock.run([program, *nodes], lambda: program.done, 600.0)
    assert bytes(program.got) == data
    counters = nodes[0].host.counters
    assert counters.path_mtus_lowered == 1
    assert program.connection.path_mtu == 900
    assert 0 < router.dropped < 100
