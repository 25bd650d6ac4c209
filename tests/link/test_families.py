"""Links of one family of addresses and of both: whom they reach, whom they hear, and where a peer with two is found."""

from __future__ import annotations

import errno
import select
import socket
from contextlib import ExitStack

import pytest

from softnic import underlay
from softnic.link import forwarding, sockets, udp
from softnic.link.secure.channel import EncryptionSettings
from softnic.link.sockets import families_of, open_socket
from softnic.link.udp import VxlanLink
from softnic.packet.frames import Frames
from softnic.underlay import ANY, ANY_IPV4, BOTH, IPV4, IPV6, Address
from tests import needs
from tests.link.doubles import BROADCAST, A, B, C, frame
from tests.link.sockets import VNI, plain_socket

V4, V6 = "127.0.0.1", "::1"
pytestmark = needs.ipv6


def bound(stack: ExitStack, host: str, mac: bytes = b"", port: int = 0) -> VxlanLink:
    settings = EncryptionSettings(bytes(32), mac) if mac else None
    link = VxlanLink((host, port), vni=VNI, encryption=settings)
    stack.callback(link.close)
    return link


def drained(link: VxlanLink, now: float = 0.0) -> list[bytes]:
    """Return what waits; loopback has delivered when send returns."""
    found: list[bytes] = []
    while select.select([link], [], [], 0)[0]:
        while (frames := link.receive(now)) is not None:
            found += frames
    return found


def ways_of(link: VxlanLink) -> dict[bytes, Address]:
    """Return where each peer is reached."""
    return {mac: path.address for mac, path in link.reached.items()}


def send(link: VxlanLink, *frames: bytes, now: float = 0.0) -> None:
    link.send(Frames.of(frames), now)


@pytest.mark.parametrize(
    ("host", "families"), [(V4, (IPV4,)), (ANY_IPV4, (IPV4,)), (V6, (IPV6,)), (ANY, BOTH)], ids=str
)
def test_a_socket_has_the_families_of_its_address(stack: ExitStack, host: str, families: tuple[int, ...]) -> None:
    opened = stack.enter_context(open_socket((host, 0)))
    assert families_of(opened) == families
    assert underlay.of_socket(opened.getsockname())[0] == host


def test_without_ipv6_in_the_system_a_socket_for_both_has_ipv4(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ipv4Only(socket.socket):
        def __init__(self, family: int, kind: int) -> None:
            if family == IPV6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, kind)

    monkeypatch.setattr(socket, "socket", Ipv4Only)
    assert stack.enter_context(open_socket((ANY, 0))).getsockname()[0] == ANY_IPV4
    with pytest.raises(OSError, match=r"cannot bind \[::1\]:0: Address family not supported"):
        open_socket((V6, 0))


@pytest.mark.parametrize(
    ("host", "peer", "text"),
    [
        (V4, V6, r"\[::1\]:9 \(IPv6\) cannot be reached from a socket of IPv4 alone: bind \"\[::\]:PORT\""),
        (V6, V4, r"127\.0\.0\.1:9 \(IPv4\) cannot be reached from a socket of IPv6 alone"),
        (V4, "fe80::1%no.such", "cannot be reached from a socket of IPv4 alone"),
    ],
)
def test_a_peer_out_of_reach_is_an_error(stack: ExitStack, host: str, peer: str, text: str) -> None:
    with pytest.raises(OSError, match=text):
        bound(stack, host).add_peer(B, (peer, 9))


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("host", [V4, V6])
def test_a_link_of_both_families_and_one_of_one(stack: ExitStack, host: str, sealed: bool) -> None:
    a, b = bound(stack, ANY, A if sealed else b""), bound(stack, host, B if sealed else b"")
    a.add_peer(B, b.address)
    b.add_peer(A, (host, a.address[1]))
    send(a, *[frame(B, A, bytes([number])) for number in range(100)])
    heard = []
    for _ in range(3):  # of hellos
        heard += drained(b)
        drained(a)
    assert heard == [frame(B, A, bytes([number])) for number in range(100)]
    send(b, frame(A, B, b"back"))
    assert drained(a) == [frame(A, B, b"back")]
    assert a.counted.dropped_unknown_source == b.counted.dropped_unknown_source == 0
    assert ways_of(a) == {B: b.address}


def test_a_mapped_peer_is_the_peer_of_ipv4(stack: ExitStack) -> None:
    a, b = bound(stack, ANY), bound(stack, V4)
    a.add_peer(B, (f"::ffff:{V4}", b.address[1]))
    b.add_peer(A, (V4, a.address[1]))
    send(b, frame(A, B))
    assert drained(a) == [frame(A, B)]
    assert ways_of(a) == {B: b.address}


def test_an_unknown_source_of_ipv4_is_named_as_such(stack: ExitStack) -> None:
    lines: list[str] = []
    link = VxlanLink((ANY, 0), vni=VNI, log=lines.append)
    stack.callback(link.close)
    stranger = plain_socket(stack, V4)
    stranger.sendto(b"?", (V4, link.address[1]))
    drained(link)
    assert lines == [f"{underlay.text(stranger.getsockname())} is not a peer of this NIC: its datagrams are dropped"]


class TestPeerWithTwoAddresses:
    """The name of B has an address of IPv6, where this host has a route, and one of IPv4."""

    @pytest.fixture(autouse=True)
    def named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve = sockets.resolve

        def found(address: Address, families: tuple[int, ...]) -> list[Address]:
            if address[0] == "node-b":
                return [(V6, address[1]), (V4, address[1])]
            return resolve(address, families)

        monkeypatch.setattr(udp, "resolve", found)

    def pair(self, stack: ExitStack, host: str, sealed: bool = False) -> tuple[VxlanLink, VxlanLink]:
        a, b = bound(stack, ANY, A if sealed else b""), bound(stack, host, B if sealed else b"")
        a.add_peer(B, ("node-b", b.address[1]))
        b.add_peer(A, (host, a.address[1]))
        return a, b

    @pytest.mark.parametrize("host", [V4, V6])
    def test_is_found_where_it_answers(self, stack: ExitStack, host: str) -> None:
        a, b = self.pair(stack, host)
        assert a.direct_path(B) is None  # nothing but the link knows that there are two ways
        assert a.path_to(B) is None
        send(a, frame(BROADCAST, A, b"who has"))
        assert drained(b) == [frame(BROADCAST, A, b"who has")]
        assert ways_of(a) == {B: (V6, b.address[1])}
        changes = a.path_changes
        send(b, frame(A, B, b"is at"))
        assert drained(a) == [frame(A, B, b"is at")]
        assert ways_of(a) == {B: (host, b.address[1])}
        assert a.path_changes > changes
        assert a.direct_path(B) is not None
        place, _ = a.path_to(B) or (None, None)
        assert a.sender_macs() == [int.from_bytes(B) if index == place else 0 for index in range(2)]
        send(a, frame(B, A, b"once"))
        assert drained(b) == [frame(B, A, b"once")]

    def test_hears_the_first_frames_once_over_each_way(self, stack: ExitStack) -> None:
        a, b = bound(stack, ANY), bound(stack, ANY)
        a.add_peer(B, ("node-b", b.address[1]))
        for host in (V4, V6):
            b.add_peer(A if host == V4 else C, (host, a.address[1]))
        send(a, frame(BROADCAST, A))
        assert drained(b) == [frame(BROADCAST, A)] * 2
        send(b, frame(A, B))
        drained(a)
        send(a, frame(B, A))
        assert drained(b) == [frame(B, A)]

    @pytest.mark.parametrize("host", [V4, V6])
    def test_agrees_on_a_session(self, stack: ExitStack, host: str) -> None:
        a, b = self.pair(stack, host, sealed=True)
        send(a, frame(B, A, b"first"))
        heard = []
        for _ in range(3):
            heard += drained(b)
            drained(a)
        assert heard == [frame(B, A, b"first")]
        send(b, frame(A, B, b"back"))
        assert drained(a) == [frame(A, B, b"back")]
        assert ways_of(a) == {B: (host, b.address[1])}

    def test_is_followed_to_its_other_address_but_not_to_and_fro(self, stack: ExitStack) -> None:
        a, b = self.pair(stack, V6)
        port = b.address[1]
        other = bound(stack, V4, port=port)
        other.add_peer(A, (V4, a.address[1]))
        ways = []
        for now, sender in ((0.0, b), (0.1, other), (0.2, b), (2.0, other), (2.1, b)):
            send(sender, frame(A, B))
            assert drained(a, now) == [frame(A, B)]
            ways.append(ways_of(a)[B][0])
        assert ways == [V6, V6, V6, V4, V4]
        assert forwarding.MOVE_S < 1.8

    def test_that_is_configured_at_one_of_them_leaves_the_other(self, stack: ExitStack) -> None:
        a, b = self.pair(stack, V6)
        a.add_peer(B, (V4, b.address[1]))
        assert ways_of(a) == {B: (V4, b.address[1])}
        assert a.direct_path(B) is not None
        send(b, frame(A, B))
        assert drained(a) == []
        assert a.counted.dropped_unknown_source == 1
        a.add_peer(B, ("node-b", b.address[1]))
        send(b, frame(A, B))
        assert drained(a) == [frame(A, B)]

    def test_that_moves_elsewhere_leaves_all_of_them(self, stack: ExitStack) -> None:
        a, b = self.pair(stack, V4)
        moved = plain_socket(stack, V4)
        a.add_peer(B, moved.getsockname())
        send(b, frame(A, B))
        assert drained(a) == []
        assert a.counted.dropped_unknown_source == 1
        assert a.peer_count == 1
