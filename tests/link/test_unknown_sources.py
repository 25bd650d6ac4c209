"""Floods of datagrams from unknown sources, and the socket filter installed in the kernel meanwhile."""

from __future__ import annotations

import ipaddress
import select
import struct
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import underlay
from softnic.link import unknown_sources
from softnic.link.forwarding import ForwardingTable
from softnic.link.sockets import open_socket
from softnic.link.udp import VxlanLink
from softnic.link.unknown_sources import program
from tests import needs
from tests.link.doubles import A, B, frame
from tests.link.sockets import BOTH_FAMILIES, PATIENCE_S, VNI, loopback, opened, plain_socket

HOSTS = BOTH_FAMILIES
FIRST, SECOND = ("192.0.2.1", 1), ("192.0.2.2", 2)
HEADER = b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0"


def told(stack: ExitStack) -> tuple[VxlanLink, list[str]]:
    lines: list[str] = []
    link = VxlanLink(loopback(stack), vni=VNI, log=lines.append)
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
    link.add_peer(A, loopback(stack, 9))
    for now in (0.0, 1.0, 59.0, 60.0):
        other.sendto(b"?", link.address)
        assert drain(link, now) == []
    name = f"{underlay.text(other.getsockname())} is not a peer of this NIC: its datagrams are dropped"
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
        assert places.add(mac, [FIRST]) is None
    assert places.add(A, [SECOND]) is None
    assert [(peer.address, peer.mac) for peer in places.peers] == [(FIRST, A), (SECOND, A)]
    first = places.peer_at(FIRST)
    assert first is not None
    guest = b"\x02guest"
    places.learn(guest, first)
    assert places.find(guest) is first
    assert places.add(B, [SECOND]) is first
    assert places.find(guest) is None
    assert [peer.address for peer in places.peers] == [SECOND]


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
        link.add_peer(A, loopback(stack, 9))
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
            host = f"10.0.{number // 250}.{number % 250}" if link.address[0] == "127.0.0.1" else f"2001:db8::{number:x}"
            link.add_peer(b"\x02" + number.to_bytes(5, "big"), (host, 4789))
        for now in (0.0, 1.0):
            other.sendto(b"?", link.address)
            drain(link, now)
        assert (link.counted.dropped_unknown_source, link.counted.unknown_source_floods) == (2, 0)


@pytest.mark.parametrize("ports", [1, 2, 100, 101, 250])
def test_the_filter_accepts_only_a_peers_address_and_port(stack: ExitStack, ports: int) -> None:
    wire = plain_socket(stack)
    here = wire.getsockname()[0]
    ours, stranger = plain_socket(stack, here), plain_socket(stack, here)
    port = ours.getsockname()[1]
    others = [each for each in range(1, 600) if each != stranger.getsockname()[1]][: ports - 1]
    before, behind = ("2001:db8::8", "2001:db8::a") if here == "::1" else ("127.0.0.8", "127.0.0.10")
    peers = [(before, port), *((here, each) for each in (*others, port)), (behind, 4789)]
    assert unknown_sources.UnknownSourceFilter(wire).count(unknown_sources.FLOOD + 1, peers, 0.0)
    ours.sendto(b"a peer", wire.getsockname())
    assert wire.recv(100) == b"a peer"
    stranger.sendto(b"unknown", wire.getsockname())  # a peer's address, another port
    ours.sendto(b"a peer again", wire.getsockname())
    wire.settimeout(PATIENCE_S)
    assert wire.recv(100) == b"a peer again"


def test_the_filter_of_ipv4_rejects_a_peers_port_at_another_address(stack: ExitStack) -> None:
    wire, ours = plain_socket(stack, "127.0.0.1"), plain_socket(stack, "127.0.0.9")
    port = ours.getsockname()[1]
    elsewhere = plain_socket(stack, "127.0.0.12", port)
    assert unknown_sources.UnknownSourceFilter(wire).count(unknown_sources.FLOOD + 1, [("127.0.0.9", port)], 0.0)
    elsewhere.sendto(b"unknown", wire.getsockname())
    ours.sendto(b"a peer", wire.getsockname())
    assert wire.recv(100) == b"a peer"


@needs.ipv6
def test_the_filter_of_both_families_tells_them_apart(stack: ExitStack) -> None:
    wire = open_socket(("::", 0))
    stack.callback(wire.close)
    wire.settimeout(PATIENCE_S)
    port = wire.getsockname()[1]
    four, six = plain_socket(stack, "127.0.0.1"), plain_socket(stack, "::1")
    strangers = plain_socket(stack, "127.0.0.1"), plain_socket(stack, "::1")
    peers = [four.getsockname(), six.getsockname()]
    assert unknown_sources.UnknownSourceFilter(wire).count(unknown_sources.FLOOD + 1, peers, 0.0)
    for four_sender, six_sender, text in ((*strangers, b"unknown"), (four, six, b"a peer")):
        four_sender.sendto(text, ("127.0.0.1", port))
        six_sender.sendto(text, ("::1", port))
    assert [wire.recv(100), wire.recv(100)] == [b"a peer"] * 2
    wire.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.recv(100)


def accepts(code: bytes, host: str, port: int) -> bool:
    """Run a program over a datagram from an address."""
    ip = ipaddress.ip_address(host)
    header = bytes([ip.version << 4]).ljust(12 if ip.version == 4 else 8, b"\0") + ip.packed
    parts = {0: port.to_bytes(2, "big"), 0xFFF0: header}
    steps = list(struct.iter_unpack("HBBI", code))
    value = at = 0
    while True:
        operation, if_so, if_not, operand = steps[at]
        at += 1
        if operation in (0x20, 0x28, 0x30):
            size = {0x20: 4, 0x28: 2, 0x30: 1}[operation]
            part, offset = parts[operand >> 16], operand & 0xFFFF
            assert offset + size <= len(part)
            value = int.from_bytes(part[offset : offset + size], "big")
        elif operation == 0x74:
            value >>= operand
        elif operation == 0x05:
            at += operand
        elif operation == 0x15:
            at += if_so if value == operand else if_not
        else:
            assert operation == 0x06
            return bool(operand)


FEW = st.integers(0, 1)
ADDRESSES = st.builds(lambda *words: str(ipaddress.IPv6Address(struct.pack("!4I", *words))), *[FEW] * 4) | st.builds(
    lambda last: f"192.0.2.{last}", FEW
)


@given(st.lists(st.tuples(ADDRESSES, st.integers(1, 5)), max_size=12), ADDRESSES, st.integers(1, 6))
def test_the_filter_accepts_peers_and_nobody_else(peers: list[tuple[str, int]], host: str, port: int) -> None:
    """Of addresses that differ in one word at least, as those of a network do."""
    code = program(dict.fromkeys(peers))
    assert accepts(code, host, port) == ((host, port) in peers)
    assert all(accepts(code, *peer) for peer in peers)


def test_without_peers_the_filter_drops_everything() -> None:
    assert program([])[-8:] == struct.pack("HBBI", 0x06, 0, 0, 0)
