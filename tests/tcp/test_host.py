"""Hosts on a network: ARP, ping, ports, listeners, many connections, and a connection to oneself."""

from __future__ import annotations

import errno

import pytest

from softnic.packet import arp, ethernet, icmp, ipv4
from softnic.packet.ethernet import ParseError
from softnic.packet.segment import Options, Segment
from softnic.tcp import isn, stack
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Closed, Connection
from softnic.tcp.counters import StackCounters
from softnic.tcp.events import EchoReply
from softnic.tcp.neighbours import MAX_ENTRIES, Neighbours
from softnic.tcp.state import State
from tests.simulation.invariants import reachable
from tests.tcp.flows import flow
from tests.tcp.lab import Lab, Pump, Wire, accept
from tests.tcp.script import ACK, LOCAL, PEER, SYN, Script, state_of


class TestArp:
    def test_the_first_segment_sends_an_arp_request(self) -> None:
        lab = Lab()
        lab.b.host.listen(0, 80, 5, lab.now)
        client = lab.a.host.connect(lab.b.ip, 80, lab.now)
        assert lab.run(lambda: client.state is State.ESTABLISHED)
        assert lab.elapsed == pytest.approx(0.004)  # ARP request and reply, SYN and SYN-ACK

    def test_connecting_without_an_arp_reply_fails(self) -> None:
        lab = Lab()
        client = lab.a.host.connect(ipv4.address("10.77.0.99"), 80, lab.now)
        lab.run(limit_s=60)
        assert (state_of(client), client.error) == (State.CLOSED, errno.EHOSTUNREACH)
        assert client.error_message == "no route to 10.77.0.99:80: its address does not answer ARP"
        [event] = lab.a.take_events()
        assert event == Closed(client, errno.EHOSTUNREACH)
        assert lab.a.host.next_time() is None

    def test_a_missing_arp_reply_is_noticed_after_three_seconds(self) -> None:
        lab = Lab()
        client = lab.a.host.connect(ipv4.address("10.77.0.99"), 80, lab.now)
        assert lab.run(lambda: client.error != 0)
        assert lab.elapsed == pytest.approx(3.0)

    def test_a_lost_arp_request_is_repeated(self) -> None:
        lab = Lab()
        lab.b.deaf = True
        lab.b.host.listen(0, 80, 5, lab.now)
        client = lab.a.host.connect(lab.b.ip, 80, lab.now)
        lab.run(limit_s=0.5)
        lab.b.deaf = False
        assert lab.run(lambda: client.state is State.ESTABLISHED, limit_s=1)

    def test_an_expired_entry_is_used_until_its_renewal_fails(self) -> None:
        lab = Lab()
        client, server = lab.pair()
        lab.run(limit_s=120)
        client.send(b"still there?")
        before = lab.now
        assert lab.run(lambda: bool(server.received))
        assert lab.now - before == pytest.approx(lab.wire.delay_s)

    def test_an_entry_is_valid_for_a_minute(self) -> None:
        neighbours = Neighbours()
        neighbours.learn(1, bytes(6), 0.0, unasked=True)
        for now, asks in ((59.9, []), (60.0, [1])):
            assert neighbours.lookup(1, now) == bytes(6)
            assert neighbours.due(now) == (asks, [])

    def test_a_reply_with_a_multicast_address_is_ignored(self) -> None:
        """Otherwise each segment would be flooded to all stations."""
        packet = arp.build(arp.Arp(arp.REPLY, b"\x01aaaaa", PEER, bytes(6), LOCAL))
        with pytest.raises(ParseError, match="sender"):
            arp.parse(packet)

    def test_waiting_for_arp_is_not_a_loss(self) -> None:
        lab = Lab()
        client, server = lab.pair()
        lab.a.host._neighbours._entries.clear()
        lab.b.deaf = True
        before = flow(client).cwnd
        client.send(b"still there?")
        lab.run(limit_s=1)
        lab.b.deaf = False
        assert lab.run(lambda: bool(server.received), limit_s=2)
        assert (flow(client).cwnd, lab.a.host.counters.retransmission_timeouts) == (before, 0)

    def test_a_peer_that_vanishes_is_reported_unreachable(self) -> None:
        lab = Lab()
        client, _ = lab.pair()
        client.set_user_timeout(10.0)
        lab.run(limit_s=120)
        lab.b.deaf = True
        client.send(b"still there?")
        lab.run(limit_s=30)
        assert client.error == errno.EHOSTUNREACH

    def test_an_entry_that_expires_while_nothing_is_in_flight(self) -> None:
        lab = Lab()
        client, _ = lab.pair()
        client.set_user_timeout(10.0)
        lab.b.deaf = True
        lab.run(limit_s=120)
        lab.a.host.ping(lab.b.ip, lab.now)
        lab.run(limit_s=10)  # ARP fails here, and its entry goes
        started = lab.now
        client.send(b"still there?")
        assert lab.run(lambda: client.error != 0, limit_s=30)
        assert lab.now - started == pytest.approx(10.0)
        assert client.error == errno.EHOSTUNREACH

    def test_unsolicited_arp_replies_are_ignored(self) -> None:
        script = Script()
        forged = arp.Arp(arp.REPLY, b"\x02aaaaa", ipv4.address("10.77.0.7"), script.host.mac, ipv4.address("10.77.0.9"))
        frame = ethernet.build(script.host.mac, b"\x02aaaaa", ethernet.TYPE_ARP, arp.build(forged))
        script.host.receive_frame(frame, script.now)
        assert script.host.counters == StackCounters(dropped_not_ours=1)

    def test_a_claim_to_the_hosts_own_address_is_ignored(self) -> None:
        script = Script()
        forged = arp.Arp(arp.REQUEST, b"\x02aaaaa", LOCAL, bytes(6), LOCAL)
        frame = ethernet.build(ethernet.BROADCAST, b"\x02aaaaa", ethernet.TYPE_ARP, arp.build(forged))
        script.host.receive_frame(frame, script.now)
        assert script.frames == []

    def test_the_cache_is_bounded(self) -> None:
        neighbours = Neighbours()
        for ip in range(2 * MAX_ENTRIES):
            neighbours.learn(ip, bytes(6), float(ip), unasked=True)
        assert sum(neighbours.known(ip) is not None for ip in range(2 * MAX_ENTRIES)) == MAX_ENTRIES
        assert neighbours.lookup(2 * MAX_ENTRIES - 1, 0.0) == bytes(6)

    def test_packets_waiting_for_arp_are_bounded(self) -> None:
        lab = Lab()
        for _ in range(100):
            lab.a.host.ping(ipv4.address("10.77.0.99"), lab.now)
        assert lab.a.host.counters.dropped_unresolved == 100 - 64
        lab.run(limit_s=10)
        assert lab.a.host.counters.dropped_unresolved == 100

    def test_a_segment_that_waits_for_arp_does_not_keep_its_connection(self) -> None:
        lab = Lab()
        connection, peer = lab.pair()
        lab.a.host._neighbours._entries.clear()
        connection.abort(lab.now)
        lab.a.take_events()
        lab.a.host.next_time()  # forgets the connection's timers
        assert not any(isinstance(each, Connection) for each in reachable(lab.a.host, beyond=lab.a))
        assert lab.run(lambda: peer.error == errno.ECONNRESET)


class TestPing:
    def test_a_ping_is_answered(self) -> None:
        lab = Lab()
        number = lab.a.host.ping(lab.b.ip, lab.now)
        lab.run(limit_s=1)
        [event] = lab.a.take_events()
        assert isinstance(event, EchoReply)
        assert (event.peer, event.sequence) == (lab.b.ip, number)
        assert event.rtt_s == pytest.approx(0.004)

    def test_a_ping_to_the_own_address(self) -> None:
        lab = Lab()
        number = lab.a.host.ping(lab.a.ip, lab.now)
        assert lab.a.take_events() == [EchoReply(lab.a.ip, number, 0.0)]

    def test_an_unsolicited_echo_reply_is_counted(self) -> None:
        script = Script()
        packet = ipv4.Packet(PEER, LOCAL, 1, icmp.build(icmp.Echo(icmp.ECHO_REPLY, 1, 1, b"")))
        frame = ethernet.build(script.host.mac, bytes(6), ethernet.TYPE_IPV4, ipv4.build(packet))
        script.host.receive_frame(frame, script.now)
        assert script.host.counters == StackCounters(dropped_protocol=1)


class TestFrames:
    @pytest.mark.parametrize(
        ("destination", "ethertype", "payload", "counter"),
        [
            (b"\x02bbbbb", 0x0806, b"", "dropped_ethernet"),
            (None, 0x86DD, b"", "dropped_ethernet"),
            (None, 0x0806, b"short", "dropped_malformed"),
            (None, 0x0800, b"short", "dropped_malformed"),
            (None, 0x0800, ipv4.build(ipv4.Packet(PEER, LOCAL, 17, b"udp")), "dropped_protocol"),
            (None, 0x0800, ipv4.build(ipv4.Packet(PEER, PEER, 1, b"icmp")), "dropped_not_ours"),
            (None, 0x0800, ipv4.build(ipv4.Packet(PEER, LOCAL, 1, b"icmp")), "dropped_malformed"),
        ],
    )
    def test_each_drop_has_its_counter(
        self, destination: bytes | None, ethertype: int, payload: bytes, counter: str
    ) -> None:
        script = Script()
        frame = ethernet.build(destination or script.host.mac, bytes(6), ethertype, payload)
        script.host.receive_frame(frame, script.now)
        script.host.counters.icmp_sent = 0
        assert script.host.counters == StackCounters(**{counter: 1})

    def test_a_truncated_frame(self) -> None:
        script = Script()
        script.host.receive_frame(b"runt", script.now)
        assert script.host.counters == StackCounters(dropped_malformed=1)

    def test_a_segment_for_another_address(self) -> None:
        script = Script()
        script.host.receive_segment(Segment(PEER, PEER, 1, 2, 3, 4, ACK), script.now)
        assert script.host.counters == StackCounters(dropped_not_ours=1)

    @pytest.mark.parametrize("source", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"])
    def test_a_syn_from_an_invalid_address(self, source: str) -> None:
        """A SYN from an invalid source address is not answered (RFC 1122, section 4.2.3.10)."""
        script = Script()
        script.host.listen(0, 80, 5, script.now)
        script.host.receive_segment(Segment(ipv4.address(source), script.host.ip, 1, 80, 3, 0, SYN), script.now)
        assert (script.sent(), script.frames) == ([], [])
        assert script.host.counters == StackCounters(dropped_not_ours=1)


class TestPorts:
    def test_a_closed_port_refuses(self) -> None:
        lab = Lab()
        client = lab.a.host.connect(lab.b.ip, 81, lab.now)
        lab.run(limit_s=1)
        assert client.error == errno.ECONNREFUSED

    def test_reserving_a_port(self) -> None:
        tcp = Lab().a.host.tcp
        assert tcp.reserve(80, False) == 80
        with pytest.raises(OSError, match="in use") as error:
            tcp.reserve(80, True)
        assert error.value.errno == errno.EADDRINUSE
        tcp.release(80)
        assert tcp.reserve(80, False) == 80

    def test_choosing_an_ephemeral_port(self) -> None:
        tcp = Lab().a.host.tcp
        ports = {tcp.reserve(0, False) for _ in range(200)}
        assert len(ports) == 200
        assert min(ports) >= 32768

    def test_ephemeral_ports_are_unpredictable(self) -> None:
        lab = Lab(nodes=4)
        ports = {node.host.connect(lab.b.ip, 80, lab.now).local[1] for node in lab.nodes}
        assert len(ports) == 4

    def test_a_port_with_connections_needs_reuse(self) -> None:
        lab = Lab()
        lab.pair(80)
        with pytest.raises(OSError, match="in use"):
            lab.b.host.reserve(80)
        assert lab.b.host.reserve(80, reuse=True) == 80

    def test_a_listener_is_exclusive(self) -> None:
        host = Lab().a.host
        listener = host.listen(host.ip, 80, 5, 0.0)
        with pytest.raises(OSError, match="in use"):
            host.listen(0, 80, 5, 0.0)
        listener.close(0.0)
        host.listen(0, 80, 5, 0.0)

    def test_only_the_own_address_can_be_bound(self) -> None:
        lab = Lab()
        with pytest.raises(OSError, match="not this node") as error:
            lab.a.host.listen(lab.b.ip, 80, 5, lab.now)
        assert error.value.errno == errno.EADDRNOTAVAIL

    def test_running_out_of_ports(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stack, "_EPHEMERAL", range(40_000, 40_003))
        lab = Lab()
        ports = {lab.a.host.connect(lab.b.ip, 80, lab.now).local[1] for _ in range(3)}
        assert ports == {40_000, 40_001, 40_002}
        with pytest.raises(OSError, match="no ephemeral port") as error:
            lab.a.host.connect(lab.b.ip, 80, lab.now)
        assert error.value.errno == errno.EADDRNOTAVAIL
        lab.a.host.connect(lab.b.ip, 81, lab.now)  # another peer's port: the same ports serve again

    def test_ports_in_time_wait_serve_again_when_no_other_is_free(self) -> None:
        """A lane of a NIC with several queues has few."""
        lab, few = Lab(), (40_001, 40_777, 50_123)
        listener = lab.b.host.listen(0, 80, 5, lab.now)

        def candidates(start: int, end: int) -> list[int]:
            return [port for port in few if start <= port < end]

        used = []
        for number in range(8):
            client = lab.a.host.connect(lab.b.ip, 80, lab.now, candidates=candidates)
            used.append(client.local[1])
            assert lab.run(lambda: bool(listener.queue), limit_s=5)
            server = accept(listener)
            client.send(number.to_bytes(4, "big"))
            client.shutdown_write()
            assert lab.run(lambda server=server: server.eof, limit_s=5)  # type: ignore[misc]
            assert server.recv(8) == number.to_bytes(4, "big")
            server.shutdown_write()
            assert lab.run(lambda client=client: client.state is State.TIME_WAIT, limit_s=5)  # type: ignore[misc]
        assert set(used[:3]) == set(few)
        assert set(used) == set(few)


class TestManyConnections:
    def test_sixty_four_connections_at_once(self) -> None:
        lab = Lab(Wire(loss=0.01), nodes=5)
        server = lab.a.host
        listener = server.listen(0, 80, 64, 0.0)
        clients = [node.host.connect(lab.a.ip, 80, lab.now) for node in lab.nodes[1:] for _ in range(16)]
        for number, client in enumerate(clients):
            client.send(number.to_bytes(4, "big") * 1000)
            client.shutdown_write()
        assert lab.run(lambda: len(listener.queue) == 64, limit_s=60)
        got: dict[bytes, bytes] = {}
        pumps = [Pump(connection, connection, b"") for connection in (accept(listener) for _ in clients)]

        def turn() -> bool:
            for pump in pumps:
                pump.got += pump.sink.recv(1 << 20)
                if pump.sink.eof:
                    got[bytes(pump.got[:4])] = bytes(pump.got)
            return len(got) == 64

        assert lab.run(turn, limit_s=60)
        assert got == {n.to_bytes(4, "big"): n.to_bytes(4, "big") * 1000 for n in range(64)}

    def test_a_connection_to_oneself(self) -> None:
        lab = Lab(nodes=1)
        listener = lab.a.host.listen(0, 80, 5, lab.now)
        client = lab.a.host.connect(lab.a.ip, 80, lab.now)
        assert lab.run(lambda: bool(listener.queue))
        pump = Pump(client, accept(listener), lab.rng.randbytes(3_000_000))
        assert lab.run(pump)
        assert pump.got == pump.data

    def test_time_waits_are_bounded(self) -> None:
        lab = Lab(config=TcpConfig(max_time_waits=5))
        for port in range(5000, 5010):
            client, server = lab.pair(port)
            client.shutdown_write()
            lab.run(limit_s=0.1)
            server.shutdown_write()
            lab.run(limit_s=0.1)
        states = [connection.state for connection in lab.a.host.tcp.connections]
        assert states == [State.TIME_WAIT] * 5
        assert {connection.peer[1] for connection in lab.a.host.tcp.connections} == set(range(5005, 5010))

    def test_timers_of_dead_connections_do_not_pile_up(self) -> None:
        script = Script()
        for script.sport in range(1024, 3024):
            connection = script.accept()
            connection.set_keepalive((7200.0, 75.0, 9), script.now)
            connection.abort(script.now)
            script.sent()
        assert script.host.tcp.scheduler.c.timer_count < 200


def test_initial_sequence_numbers_depend_on_both_ends_and_a_secret() -> None:
    """Without the secret, initial numbers of other connections reveal nothing (RFC 6528, section 3)."""
    ends = [(LOCAL, 1), (LOCAL, 2), (PEER, 1)]
    numbers = {
        isn.initial_sequence(secret, local, peer, 0.0) for secret in (b"a", b"b") for local in ends for peer in ends
    }
    assert len(numbers) == 2 * 9
    many = [isn.initial_sequence(b"a", (LOCAL, port), (PEER, 80), 0.0) for port in range(1000)]
    assert len(set(many)) == 1000
    assert len({number >> 24 for number in many}) > 200
    offsets = {isn.timestamp_offset(secret, local, peer) for secret in (b"a", b"b") for local, peer in ((1, 2), (1, 3))}
    assert len(offsets) == 4


def test_initial_sequence_numbers_differ_and_grow() -> None:
    script = Script()

    def number(port: int) -> int:
        return script.host.tcp.initial_sequence((LOCAL, port), (PEER, 80), script.now)

    first = number(1)
    assert first != number(2)
    script.now += 1.0
    assert (number(1) - first) & 0xFFFFFFFF == 250_000


def test_a_restarted_peer_is_noticed_at_once() -> None:
    lab = Lab()
    client, server = lab.pair()
    lab.b.host.tcp.remove(server)  # as after a restart of the node
    client.send(b"hello?")
    lab.run(limit_s=1)
    assert client.error == errno.ECONNRESET


def test_a_syn_offers_all_options() -> None:
    script = Script()
    script.host.connect(PEER, 80, script.now)
    [syn] = script.sent()
    assert (syn.flags, syn.ack, syn.window) == (SYN, 0, 65535)
    assert syn.options == Options(mss=1460, window_scale=13, sack_permitted=True)
    assert syn.timestamps is not None
    assert syn.timestamps[1] == 0


def test_wants_output_only_while_a_segment_is_due() -> None:
    script = Script()
    assert not script.host.wants_output()
    connection = script.established()
    assert not script.host.wants_output()
    connection.send(b"x")
    assert script.host.wants_output()
    script.sent()
    assert not script.host.wants_output()
