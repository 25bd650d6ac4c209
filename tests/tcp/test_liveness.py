"""Peer liveness: all connections to a silent or restarted peer end within the bound, and no others."""

from __future__ import annotations

import errno
import tracemalloc
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softnic.comm.transport import KEEPALIVE_S, USER_TIMEOUT_MS
from softnic.packet import arp, ethernet
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Closed, Connection
from softnic.tcp.host import Host
from softnic.tcp.liveness import QUIET_S, PeerFound, PeerLost
from softnic.tcp.state import State
from tests.tcp.lab import Lab, Node, Wire

PATIENCE_S = 4.0
IN_TIME_S = 5.0
"""The documented bound in seconds."""


def lab(wire: Wire | None = None, nodes: int = 2, seed: int = 1) -> Lab:
    return Lab(wire, seed, nodes, TcpConfig(peer_timeout_s=PATIENCE_S))


class TestSilence:
    def test_a_reader_gets_an_error_within_the_peer_timeout(self) -> None:
        net = lab()
        client, server = net.pair()
        net.run(limit_s=30)
        heard, [dead, alive] = net.now, net.nodes
        net.nodes.remove(dead)
        assert net.run(lambda: server.state is State.CLOSED, limit_s=10)
        assert net.now - heard < PATIENCE_S + QUIET_S
        assert (server.error, server.error_message) == (
            errno.ETIMEDOUT,
            f"10.77.0.1:{client.local[1]} is lost: its node has not answered for 4.0 s",
        )
        closed, lost = alive.take_events()
        assert closed == Closed(server, errno.ETIMEDOUT)
        assert isinstance(lost, PeerLost)
        assert (lost.peer, lost.connections) == (dead.ip, 1)
        assert lost.silent_s == pytest.approx(PATIENCE_S)
        net.nodes.append(dead)
        assert net.run(lambda: client.state is State.CLOSED, limit_s=2)  # by either end's reset
        assert client.error == errno.ECONNRESET
        assert alive.take_events() == [PeerFound(dead.ip)]

    def test_the_relay_of_a_lost_peer_is_named(self) -> None:
        net = lab()
        _, server = net.pair()
        dead, alive = net.nodes
        net.relays[dead.ip] = "192.0.2.1:9500"
        net.nodes.remove(dead)
        assert net.run(lambda: server.state is State.CLOSED, limit_s=10)
        assert server.error_message.endswith("is lost: its node has not answered for 4.0 s, relayed by 192.0.2.1:9500")
        assert [event.relay for event in alive.take_events() if isinstance(event, PeerLost)] == ["192.0.2.1:9500"]

    def test_a_cut_wire_is_noticed_at_both_ends(self) -> None:
        net = lab()
        ends = net.pair()
        net.wire.loss = 1.0
        net.run(limit_s=PATIENCE_S + QUIET_S)
        assert {end.error for end in ends} == {errno.ETIMEDOUT}

    def test_an_idle_connection_sends_one_probe_a_second_at_most(self) -> None:
        net = lab()
        client, server = net.pair()
        asked = net.a.host.counters.dropped_ethernet  # nothing of it is dropped
        before = net.a.ethernet_frames
        net.run(limit_s=100)
        frames = net.a.ethernet_frames - before
        assert {client.state, server.state} == {State.ESTABLISHED}
        assert 90 <= frames <= 2 * 100 + 2  # its own probes, and replies to the peer's
        assert net.a.host.counters.dropped_ethernet == asked

    def test_peers_without_connections_are_not_probed(self) -> None:
        net = lab()
        net.pair()[0].abort(net.now)
        net.run(limit_s=2 * QUIET_S + 1)
        assert net.a.host.next_time() is None
        assert net.b.host.next_time() is None

    def test_connecting_to_a_recently_lost_peer_fails_as_fast(self) -> None:
        net = lab()
        net.pair()  # its address is known
        dead = net.nodes.pop()
        client, began = net.a.host.connect(dead.ip, 80, net.now), net.now
        assert net.run(lambda: client.error == errno.ETIMEDOUT, limit_s=10)
        assert net.now - began < PATIENCE_S + QUIET_S

    def test_only_connections_to_the_silent_peer_end(self) -> None:
        net = lab(nodes=3)
        client, server = net.pair()
        last = net.nodes.pop()
        net.nodes.insert(0, last)
        _, end = net.pair(port=6000)  # from the last to the first
        net.nodes.remove(last)
        net.run(limit_s=10)
        assert (client.state, server.state, end.state) == (State.ESTABLISHED, State.ESTABLISHED, State.CLOSED)

    def test_socket_options_override_the_peer_timeout(self) -> None:
        net = lab()
        _, patient = net.pair()
        _, usual = net.pair(port=5001)
        patient.set_user_timeout(20.0)
        net.nodes.pop(0)
        net.run(limit_s=10)
        assert (patient.state, usual.state) == (State.ESTABLISHED, State.CLOSED)
        net.run(limit_s=11)
        assert "has not answered for 20" in patient.error_message

    def test_time_this_node_was_suspended_does_not_count(self) -> None:
        net = lab()
        client, server = net.pair()
        for _ in range(20):  # stopped for a minute, awake for an instant
            net.now += 60
            net.step()
            net.run(limit_s=0.01)
        assert {client.state, server.state} == {State.ESTABLISHED}

    def test_time_this_node_was_suspended_does_not_count_after_a_lost_probe(self) -> None:
        net = lab()
        client, server = net.pair()
        for _ in range(5):
            net.run(limit_s=2)
            net.wire.loss = 1.0
            net.run(limit_s=1.3)
            net.now += 60
            net.step()
            net.wire.loss = 0.0
            net.run(limit_s=2)
        assert {client.state, server.state} == {State.ESTABLISHED}

    def test_a_later_connection_to_a_known_peer_is_watched(self) -> None:
        """Nothing else is to be asked when it is made: the peer's address is known."""
        net = lab()
        for end in net.pair():
            end.abort(net.now)
        net.run(limit_s=10)
        host = net.a.host
        assert host.next_request() is None
        net.b.host.listen(0, 80, 5, net.now)
        host.connect(net.b.ip, 80, net.now)
        due = host.next_request()
        assert due is not None
        assert due <= net.now

    def test_a_node_does_not_probe_itself(self) -> None:
        net = lab(nodes=1)
        net.a.host.listen(0, 80, 5, net.now)
        client = net.a.host.connect(net.a.ip, 80, net.now)
        net.run(limit_s=30)
        assert client.state is State.ESTABLISHED
        assert net.a.host.next_time() is None

    @pytest.mark.parametrize("seed", range(5))
    def test_a_link_with_a_third_lost_ends_no_connection(self, seed: int) -> None:
        net = lab(Wire(loss=0.0), seed=seed)
        client, server = net.pair()
        net.wire.loss = 0.33
        net.run(limit_s=120)
        assert {client.state, server.state} == {State.ESTABLISHED}

    def test_without_a_peer_timeout_nothing_ends(self) -> None:
        net = Lab()
        client, server = net.pair()
        net.wire.loss = 1.0
        net.run(limit_s=1000)
        assert {client.state, server.state} == {State.ESTABLISHED}


MOMENTS = st.lists(st.integers(0, 9000).map(lambda ms: ms / 1000), max_size=8)


class TestBound:
    """A lost peer is reported within 5 s whenever data was sent. MARGIN_S of these is reserved for delays of a loaded
    host."""

    MARGIN_S = 0.7

    @settings(max_examples=300, deadline=None)
    @given(MOMENTS, MOMENTS, st.integers(0, 3000).map(lambda ms: ms / 1000), st.sampled_from([None, PATIENCE_S, 60.0]))
    @example([2.99], [], 0.0, None)  # between the last probe and its verdict
    @example([0.0, 3.5], [3.0], 3.0, 60.0)
    def test_bound_for_ranks(
        self, said: list[float], heard: list[float], dies: float, peer_timeout_s: float | None
    ) -> None:
        """With the socket options of connections between ranks, for any peer timeout of the NIC."""
        net = Lab(config=TcpConfig(peer_timeout_s=peer_timeout_s))
        client, server = net.pair()
        client.set_user_timeout(USER_TIMEOUT_MS / 1000)
        client.set_keepalive(KEEPALIVE_S, net.now)
        self._bury(net, client, server, said, heard, dies)

    @settings(max_examples=200, deadline=None)
    @given(MOMENTS, MOMENTS, st.integers(0, 3000).map(lambda ms: ms / 1000))
    @example([], [0.002, 0.002], 0.004)  # when looks add up to a rounding error more than the silence
    def test_bound_for_any_connection(self, said: list[float], heard: list[float], dies: float) -> None:
        """The bound holds for a connection without socket options."""
        net = lab()
        self._bury(net, *net.pair(), said, heard, dies)

    def _bury(
        self, net: Lab, end: Connection, other: Connection, said: list[float], heard: list[float], dies: float
    ) -> None:
        """Write from `end` at each time of `said` and from the other end at each of `heard`, until its node dies."""
        began = net.now
        happens = [(at, end) for at in said] + [(at, other) for at in heard if at < dies] + [(dies, None)]
        for at, writer in sorted(happens, key=lambda item: item[0]):
            net.run(limit_s=began + at - net.now)
            if writer is None:
                net.nodes.pop()
            elif writer.state is State.ESTABLISHED:
                writer.send(bytes(1000))
        net.run(limit_s=max(0.0, began + dies + IN_TIME_S - self.MARGIN_S - net.now))
        assert end.error == errno.ETIMEDOUT


def announcement(node: Node) -> bytes:
    packet = arp.Arp(arp.REQUEST, node.mac, node.ip, bytes(6), node.ip)
    return ethernet.build(ethernet.BROADCAST, node.mac, ethernet.TYPE_ARP, arp.build(packet))


class TestBeginning:
    def restart(self, net: Lab) -> None:
        """Crashes node a and starts another in its place."""
        net.a.host = Host(
            net.a.ip,
            net.a.mac,
            transmitter=net.a,
            send_frame=net.a.send_frame,
            rng=Random(77),
            config=net.a.config,
        )
        net.a.host.begin(net.now)

    def test_connections_to_the_previous_instance_are_reset(self) -> None:
        net = lab()
        ends = [net.pair(port=5000 + index)[1] for index in range(3)]
        self.restart(net)
        began = net.now
        assert net.run(lambda: all(end.state is State.CLOSED for end in ends), limit_s=10)
        assert net.now - began < 0.1
        assert {end.error for end in ends} == {errno.ECONNRESET}

    def test_a_lost_announcement_is_compensated_by_probes(self) -> None:
        net = lab()
        _, end = net.pair()
        net.b.deaf = True
        self.restart(net)
        net.run(limit_s=0.5)
        net.b.deaf = False
        began = net.now
        assert net.run(lambda: end.state is State.CLOSED, limit_s=10)
        assert (end.error, net.now - began < 1) == (errno.ECONNRESET, True)

    def test_connections_to_the_new_instance_continue(self) -> None:
        net = lab()
        self.restart(net)
        client, server = net.pair()
        net.run(limit_s=10)
        assert {client.state, server.state} == {State.ESTABLISHED}

    def test_a_connection_that_is_being_opened_needs_no_probe(self) -> None:
        net = lab()
        net.a.host.ping(net.b.ip, net.now)
        net.run(limit_s=0.1)
        net.b.deaf = True
        client = net.a.host.connect(net.b.ip, 80, net.now)
        net.run(limit_s=0.1)
        net.a.host.receive_frame(announcement(net.b), net.now)
        assert [frame.options is not None for frame in net.a.sent] == [True]  # the SYN
        assert client.state is State.SYN_SENT

    def test_a_flood_of_announcements_causes_no_flood_of_probes(self) -> None:
        net = lab()
        _, end = net.pair()
        told = announcement(net.a)
        for _ in range(1000):
            net.b.host.receive_frame(told, net.now)
        assert len(net.b.sent) == 1
        assert end.state is State.ESTABLISHED

    def test_announcements_from_invented_addresses_are_not_remembered(self) -> None:
        net = lab()
        _, end = net.pair()
        broadcast, none = ethernet.BROADCAST, bytes(6)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for ip in range(net.b.ip + 1, net.b.ip + 2001):
                packet = arp.build(arp.Arp(arp.REQUEST, net.a.mac, ip, none, ip))
                net.b.host.receive_frame(ethernet.build(broadcast, net.a.mac, ethernet.TYPE_ARP, packet), net.now)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 20_000
        assert net.b.sent == []
        assert end.state is State.ESTABLISHED
