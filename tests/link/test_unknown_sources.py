"""Floods of datagrams from unknown sources, and the socket filter installed in the kernel meanwhile."""

from __future__ import annotations

import select
import socket
import struct
from contextlib import ExitStack

import pytest

from softnic.link import unknown_sources
from softnic.link.forwarding import ForwardingTable, LinkPeer
from softnic.link.udp import VxlanLink
from softnic.link.unknown_sources import program
from tests.link.doubles import A, B, frame
from tests.link.sockets import LOOPBACK, PATIENCE_S, VNI, opened, plain_socket

HEADER = b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0"


def told(stack: ExitStack) -> tuple[VxlanLink, list[str]]:
    lines: list[str] = []
    link = VxlanLink(LOOPBACK, vni=VNI, log=lines.append)
    stack.callback(link.close)
    return link, lines


def drain(link: VxlanLink, now: float) -> list[bytes]:
    """Return all datagrams that wait; loopback delivers before send returns."""
    found: list[bytes] = []
    while select.select([link], [], [], 0)[0]:
        while (frames := link.receive(now)) is not None:
            found += frames
    return found


def test_an_unknown_source_is_logged_once_a_minute(stack: ExitStack) -> None:
    link, lines = told(stack)
    other = plain_socket(stack)
    link.add_peer(A, ("127.0.0.1", 9))
    for now in (0.0, 1.0, 59.0, 60.0):
        other.sendto(b"?", link.address)
        assert drain(link, now) == []
    name = f"127.0.0.1:{other.getsockname()[1]} is not a peer of this NIC: its datagrams are dropped"
    assert lines == [name, f"{name} (2 more since the last report)"]
    assert link.counted.dropped_unknown_source == 4


def test_datagrams_from_the_old_address_of_a_moved_peer_are_dropped(stack: ExitStack) -> None:
    link = opened(stack)
    before, after = plain_socket(stack), plain_socket(stack)
    link.add_peer(A, before.getsockname())
    link.add_peer(A, after.getsockname())
    for sender in (before, after):
        sender.sendto(HEADER + frame(B, A, sender.getsockname()[1].to_bytes(2, "big")), link.address)
    assert drain(link, 0.0) == [frame(B, A, after.getsockname()[1].to_bytes(2, "big"))]
    assert link.counted.dropped_unknown_source == 1


def test_an_address_is_known_as_long_as_a_station_is_configured_at_it() -> None:
    places = ForwardingTable()
    for mac in (A, B):
        assert places.add(mac, 1, 1) is None
    assert places.add(A, 2, 2) is None
    assert [(peer.address, peer.mac) for peer in places.peers] == [(1, A), (2, A)]
    first = places.peer_at(1, 1)
    assert first is not None
    guest = b"\x02guest"
    places.learn(guest, first)
    assert places.find(guest) is first
    assert places.add(B, 2, 2) is first
    assert places.find(guest) is None
    assert [peer.address for peer in places.peers] == [2]


class TestFlood:
    def test_during_a_flood_the_kernel_filters_unknown_sources(
        self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unknown_sources, "FLOOD", 20)
        link, _ = told(stack)
        peer, other = plain_socket(stack), plain_socket(stack)
        link.add_peer(A, peer.getsockname())
        for _ in range(21):
            other.sendto(b"?", link.address)
        drain(link, 0.0)
        assert (link.counted.dropped_unknown_source, link.counted.unknown_source_floods) == (21, 1)
        other.sendto(b"?", link.address)
        assert not select.select([link], [], [], 0)[0]  # the filter dropped it
        assert link.counters()["link_kernel_dropped_datagrams"] == 1
        peer.sendto(HEADER + frame(B, A, b"heard"), link.address)
        assert drain(link, 1.0) == [frame(B, A, b"heard")]
        late = plain_socket(stack)
        link.add_peer(B, late.getsockname())
        late.sendto(HEADER + frame(A, B, b"a new peer"), link.address)
        assert drain(link, 2.0) == [frame(A, B, b"a new peer")]
        link.advance(unknown_sources.HOLD_S)
        other.sendto(b"?", link.address)
        drain(link, unknown_sources.HOLD_S)
        assert (link.counted.dropped_unknown_source, link.counted.unknown_source_floods) == (22, 1)

    def test_occasional_unknown_sources_install_no_filter(
        self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unknown_sources, "FLOOD", 20)
        link, _ = told(stack)
        other = plain_socket(stack)
        link.add_peer(A, ("127.0.0.1", 9))
        for window in range(5):
            for _ in range(20):
                other.sendto(b"?", link.address)
            drain(link, window * unknown_sources.WINDOW_S)
        assert (link.counted.dropped_unknown_source, link.counted.unknown_source_floods) == (100, 0)

    def test_with_more_peers_than_a_filter_holds_the_daemon_checks_sources(
        self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unknown_sources, "FLOOD", 0)
        link, _ = told(stack)
        other = plain_socket(stack)
        for number in range(1000):
            link.add_peer(b"\x02" + number.to_bytes(5, "big"), (f"10.0.{number // 250}.{number % 250}", 4789))
        for now in (0.0, 1.0):
            other.sendto(b"?", link.address)
            drain(link, now)
        assert (link.counted.dropped_unknown_source, link.counted.unknown_source_floods) == (2, 0)


def loopback(last: int, port: int) -> LinkPeer:
    return LinkPeer(0x7F000000 + last, port, A)


@pytest.mark.parametrize("ports", [1, 2, 100, 101, 250])
def test_the_filter_accepts_only_a_peers_address_and_port(stack: ExitStack, ports: int) -> None:
    wire = plain_socket(stack)
    ours = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    ours.bind(("127.0.0.9", 0))
    port = ours.getsockname()[1]
    others = [port % 60000 + 1 + each for each in range(ports - 1)]
    peers = [loopback(8, port), *(loopback(9, each) for each in (*others, port)), loopback(10, 4789)]
    assert unknown_sources.UnknownSourceFilter(wire).count(unknown_sources.FLOOD + 1, peers, 0.0)
    ours.sendto(b"a peer", wire.getsockname())
    assert wire.recv(100) == b"a peer"
    there = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    there.bind(("127.0.0.10", 0))  # a peer's address, another port
    there.sendto(b"unknown", wire.getsockname())
    elsewhere = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    elsewhere.bind(("127.0.0.12", port))  # a peer's port, another address
    elsewhere.sendto(b"unknown", wire.getsockname())
    ours.sendto(b"a peer again", wire.getsockname())
    wire.settimeout(PATIENCE_S)
    assert wire.recv(100) == b"a peer again"


def test_without_peers_the_filter_drops_everything() -> None:
    assert program([])[-8:] == struct.pack("HBBI", 0x06, 0, 0, 0)
