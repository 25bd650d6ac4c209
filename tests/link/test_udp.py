"""VXLAN over real UDP sockets on loopback, and over a scripted kernel."""

from __future__ import annotations

import errno
import itertools
import os
import re
import select
import socket
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic import underlay
from softnic._native import lib
from softnic.link import forwarding as forwarding_table
from softnic.link import udp
from softnic.link.sockets import bind_reason
from softnic.link.udp import VxlanLink
from softnic.link.vxlan_counters import VxlanCounters
from softnic.packet.frames import HEADROOM, Frames
from tests.link.doubles import BROADCAST, A, B, C, frame, numbered
from tests.link.sockets import (
    BOTH_FAMILIES,
    LOOPBACK,
    PATIENCE_S,
    VNI,
    host_of,
    loopback,
    opened,
    plain_socket,
)

HOSTS = BOTH_FAMILIES


def collect(link: VxlanLink, count: int) -> list[bytes]:
    """Return the next `count` frames, or those received before the timeout."""
    found: list[bytes] = []
    while len(found) < count and select.select([link], [], [], PATIENCE_S)[0]:
        while (frames := link.receive(0.0)) is not None:
            found += frames
    return found


def expect_nothing(link: VxlanLink) -> None:
    """Check that no frame waits. Loopback delivers before send returns, so none can still arrive."""
    assert link.receive(0.0) is None


@pytest.fixture
def pair(stack: ExitStack) -> tuple[VxlanLink, VxlanLink]:
    """Return node A's link and node B's."""
    a, b = opened(stack), opened(stack)
    a.add_peer(B, b.address)
    b.add_peer(A, a.address)
    return a, b


Pair = tuple[VxlanLink, VxlanLink]


class TestFrames:
    def test_cross_in_order_with_every_byte(self, pair: Pair) -> None:
        a, b = pair
        frames = numbered(0, 100)
        a.send(frames, 0.0)
        assert collect(b, 100) == list(frames)
        assert a.counted == VxlanCounters(sent_frames=100, sent_bytes=100 * 1514)
        assert b.counted == VxlanCounters(received_frames=100, received_bytes=100 * 1514)

    @settings(deadline=None)
    @given(sizes=st.lists(st.sampled_from([14, 15, 66, 1513, 1514, 3000]), min_size=1, max_size=60))
    def test_cross_with_any_mix_of_sizes(self, sizes: list[int]) -> None:
        with ExitStack() as stack:
            a, b = opened(stack), opened(stack)
            a.add_peer(B, b.address)
            b.add_peer(A, a.address)
            sent = [frame(B, A, bytes([index]) * (size - 14)) for index, size in enumerate(sizes)]
            a.send(Frames.of(sent), 0.0)
            assert collect(b, len(sent)) == sent

    def test_need_not_be_contiguous_in_memory(self, pair: Pair) -> None:
        a, b = pair
        frames = numbered(0, 90).select(slice(None, None, -3))
        frames.offsets, frames.lengths = frames.offsets.copy(), frames.lengths.copy()
        a.send(frames, 0.0)
        assert collect(b, 30) == list(frames)

    def test_do_not_outlive_the_next_receive_but_leave_headroom(self, pair: Pair) -> None:
        a, b = pair
        a.send(numbered(0, 50), 0.0)
        assert select.select([b], [], [], PATIENCE_S)[0]
        frames = b.receive(0.0)
        assert frames is not None
        ends = [0, *(frames.offsets + frames.lengths).tolist()]
        assert all(start - end >= HEADROOM for start, end in zip(frames.offsets.tolist(), ends, strict=False))

    def test_an_empty_batch_sends_nothing(self, pair: Pair) -> None:
        a, b = pair
        a.send(Frames.of([]), 0.0)
        expect_nothing(b)
        assert a.counted == VxlanCounters()

    def test_datagrams_are_standard_vxlan(self, stack: ExitStack) -> None:
        a, other = opened(stack), plain_socket(stack)
        a.add_peer(B, other.getsockname())
        a.send(numbered(0, 3, 100), 0.0)
        header = b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0"
        assert [other.recv(2000) for _ in range(3)] == [header + data for data in numbered(0, 3, 100)]

    def test_datagrams_of_a_standard_vxlan_device_are_received(self, stack: ExitStack) -> None:
        b, other = opened(stack), plain_socket(stack)
        b.add_peer(A, other.getsockname())
        reserved_bits = b"\xff\xff\xff\xff" + VNI.to_bytes(3, "big") + b"\xff"
        other.sendto(reserved_bits + frame(B, A), b.address)
        assert collect(b, 1) == [frame(B, A)]


class TestPlaces:
    @pytest.fixture
    def three(self, stack: ExitStack) -> tuple[VxlanLink, VxlanLink, VxlanLink]:
        links = [opened(stack) for _ in range(3)]
        for (one, _), (other, mac) in itertools.permutations(zip(links, (A, B, C), strict=True), 2):
            one.add_peer(mac, other.address)
        a, b, c = links
        return a, b, c

    Three = tuple[VxlanLink, VxlanLink, VxlanLink]

    def test_frames_to_a_configured_station_go_to_its_peer_only(self, three: Three) -> None:
        a, b, c = three
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert collect(b, 1) == [frame(B, A)]
        expect_nothing(c)

    @pytest.mark.parametrize("destination", [BROADCAST, b"\x33\x33\0\0\0\1", b"\x02unkno"])
    def test_frames_to_an_unknown_station_go_to_all_peers(self, three: Three, destination: bytes) -> None:
        a, b, c = three
        a.send(Frames.of([frame(destination, A)]), 0.0)
        assert collect(b, 1) == collect(c, 1) == [frame(destination, A)]
        assert a.counted.sent_frames == 2

    def test_a_station_behind_a_peer_is_learned_and_may_move(self, three: Three) -> None:
        a, b, c = three
        guest = b"\x02guest"
        for home, elsewhere in ((b, c), (c, b)):
            home.send(Frames.of([frame(A, guest)]), 0.0)
            assert collect(a, 1) == [frame(A, guest)]
            a.send(Frames.of([frame(guest, A)]), 0.0)
            assert collect(home, 1) == [frame(guest, A)]
            expect_nothing(elsewhere)

    def test_a_peer_cannot_claim_the_station_of_another_peer(self, three: Three) -> None:
        a, b, c = three
        c.send(Frames.of([frame(A, B)]), 0.0)
        assert collect(a, 1) == [frame(A, B)]
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert collect(b, 1) == [frame(B, A)]
        expect_nothing(c)

    def test_the_table_of_learned_stations_is_bounded(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b = pair
        monkeypatch.setattr(forwarding_table, "MAX_LEARNED", 3)
        for last in range(8):
            b.send(Frames.of([frame(A, b"\x02gues" + bytes([last]))]), 0.0)
            collect(a, 1)
        assert sorted(mac[-1] for mac in a._forwarding._learned) == [5, 6, 7]

    def test_without_peers_nothing_is_sent(self, stack: ExitStack) -> None:
        link = opened(stack)
        link.send(numbered(0, 5), 0.0)
        assert link.counted == VxlanCounters(dropped_no_peer=5)


class TestForeigners:
    def test_datagrams_from_unknown_sources_are_dropped(self, stack: ExitStack, pair: Pair) -> None:
        a, b = pair
        unknown = opened(stack)
        unknown.add_peer(B, b.address)
        unknown.send(numbered(0, 3), 0.0)
        expect_nothing(b)
        a.send(numbered(3, 1), 0.0)
        unknown.send(numbered(4, 3), 0.0)
        a.send(numbered(7, 1), 0.0)
        assert collect(b, 2) == [*numbered(3, 1), *numbered(7, 1)]
        assert b.counted == VxlanCounters(received_frames=2, received_bytes=3028, dropped_unknown_source=6)

    @pytest.mark.parametrize(
        "datagram",
        [
            b"",
            b"\x08",
            b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0",
            b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0" + frame(B, A)[:13],
            b"\xf7\0\0\0" + VNI.to_bytes(3, "big") + b"\0" + frame(B, A),
            b"\x08\0\0\0" + (VNI + 1).to_bytes(3, "big") + b"\0" + frame(B, A),
            frame(B, A, bytes(100)),
        ],
        ids=["empty", "one byte", "no frame", "short frame", "no I flag", "other VNI", "no VXLAN"],
    )
    def test_other_datagrams_than_vxlan_with_this_vni_are_counted(self, stack: ExitStack, datagram: bytes) -> None:
        b, other = opened(stack), plain_socket(stack)
        b.add_peer(A, other.getsockname())
        other.sendto(datagram, b.address)
        expect_nothing(b)
        assert b.counted == VxlanCounters(dropped_malformed=1)

    @settings(deadline=None)
    @given(datagrams=st.lists(st.binary(max_size=60), max_size=8))
    def test_random_datagrams_are_dropped(self, datagrams: list[bytes]) -> None:
        with ExitStack() as stack:
            b, other = opened(stack), plain_socket(stack)
            b.add_peer(A, other.getsockname())
            for datagram in datagrams:
                other.sendto(datagram, b.address)
            good = b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0" + frame(B, A, b"!")
            other.sendto(good, b.address)
            assert collect(b, 1)[-1] == frame(B, A, b"!")
            assert b.counted.received_frames + b.counted.dropped_malformed == len(datagrams) + 1

    def test_a_flood_from_unknown_sources_does_not_delay_the_daemon(self, stack: ExitStack) -> None:
        b, other = opened(stack), plain_socket(stack)
        b.add_peer(A, loopback(stack, 9))
        waiting = 2 * udp.MAX_FOREIGN_BATCHES * 32
        for _ in range(waiting):
            other.sendto(b"noise", b.address)
        assert b.receive(0.0) is None
        assert 0 < b.counted.dropped_unknown_source < waiting
        assert select.select([b], [], [], 0.0)[0]

    def test_a_dead_peer_is_no_error(self, pair: Pair) -> None:
        a, b = pair
        b.close()
        for _ in range(3):
            a.send(numbered(0, 3), 0.0)
            expect_nothing(a)
        assert a.counted == VxlanCounters(sent_frames=9, sent_bytes=9 * 1514)


SO_NO_CHECK = 11


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EACCES, "x"), "Permission denied (ports below 1024 need root or CAP_NET_BIND_SERVICE: take a "),
        (OSError(errno.EADDRINUSE, "x"), "Address already in use (another process uses this port)"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "Cannot assign requested address (no interface of this host has it)"),
        (OSError(errno.EINVAL, "x"), "Invalid argument"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
    ],
)
def test_why_an_address_cannot_be_bound(error: OSError, said: str) -> None:
    assert bind_reason(error).startswith(said)


def test_without_gso_frames_are_sent_one_by_one(pair: Pair) -> None:
    """Linux refuses GSO to a socket that sends without checksums, as a device without checksum offload does."""
    a, b = pair
    with socket.socket(fileno=os.dup(a.fileno())) as udp_socket:
        udp_socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    frames = numbered(0, 50)
    a.send(frames, 0.0)
    assert collect(b, 50) == list(frames)
    assert a.counted == VxlanCounters(sent_frames=50, sent_bytes=50 * 1514)


class ScriptedKernel:
    """Replaces the native library: send accepts as many frames as the script says, or fails with that errno."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.calls: list[tuple[int, bool]] = []

    def sn_vxlan_send(self, *arguments: object) -> int:
        count, gso = int(str(arguments[6])), bool(arguments[7])
        self.calls.append((count, gso))
        return min(self.script.pop(0), count) if self.script else count

    def __getattr__(self, name: str) -> object:
        return getattr(lib, name)


class TestFullSocket:
    def scripted(self, stack: ExitStack, patch: pytest.MonkeyPatch, *script: int) -> tuple[VxlanLink, ScriptedKernel]:
        link = opened(stack)
        link.add_peer(B, loopback(stack, 9))
        kernel = ScriptedKernel(list(script))
        patch.setattr(udp, "lib", kernel)
        return link, kernel

    @pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOBUFS])
    def test_frames_wait_for_a_full_socket(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
        link, kernel = self.scripted(stack, monkeypatch, 4, -error, -error, 3, -error)
        assert link.tx_space(1.0) > 0
        assert link.next_time() is None
        link.send(numbered(0, 10), 1.0)
        link.send(numbered(10, 5), 1.0)
        assert kernel.calls == [(10, True), (6, True)]
        assert link.tx_space(1.0) == 0
        retry = link.next_time()
        assert retry == 1.0 + udp.RETRY_S
        link.advance(1.0)
        assert len(kernel.calls) == 2
        link.advance(retry)
        assert kernel.calls[2:] == [(6, True)]
        assert link.next_time() == retry + udp.RETRY_S
        link.advance(2.0)
        assert kernel.calls[3:] == [(6, True), (3, True)]
        link.advance(3.0)
        assert kernel.calls[5:] == [(3, True), (5, True)]
        assert link.next_time() is None
        assert link.tx_space(3.0) > 0
        assert link.counted == VxlanCounters(sent_frames=15, sent_bytes=15 * 1514)

    def test_the_queue_is_bounded(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(udp, "SEND_LIMIT_BYTES", 10 * 1514)
        link, _ = self.scripted(stack, monkeypatch, -errno.EAGAIN)
        link.send(numbered(0, 8), 0.0)
        link.send(numbered(8, 3), 0.0)
        link.send(numbered(11, 2), 0.0)
        assert link.counted == VxlanCounters(dropped_full=3)
        link.advance(1.0)
        assert link.counted == VxlanCounters(dropped_full=3, sent_frames=10, sent_bytes=15140)

    def test_gso_is_disabled_when_it_fails(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        link, kernel = self.scripted(stack, monkeypatch, 2, -errno.EIO)
        link.send(numbered(0, 5), 0.0)
        link.send(numbered(5, 1), 0.0)
        assert kernel.calls == [(5, True), (3, True), (3, False), (1, False)]

    def test_a_pending_socket_error_is_ignored(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        link, kernel = self.scripted(stack, monkeypatch, -errno.ECONNREFUSED)
        link.send(numbered(0, 5), 0.0)
        assert kernel.calls == [(5, True), (5, True)]
        assert link.counted == VxlanCounters(sent_frames=5, sent_bytes=5 * 1514)

    @pytest.mark.parametrize(
        "script", [(-errno.EHOSTUNREACH,), (-errno.EINVAL, -errno.EINVAL), (-errno.ECONNREFUSED, -errno.ECONNREFUSED)]
    )
    def test_frames_that_the_kernel_rejects_are_dropped(
        self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, script: tuple[int, ...]
    ) -> None:
        link, _ = self.scripted(stack, monkeypatch, *script)
        link.send(numbered(0, 5), 0.0)
        assert link.counted == VxlanCounters(dropped_send_error=5)
        assert link.next_time() is None
        link.send(numbered(0, 5), 0.0)
        assert link.counted.sent_frames == 5

    def test_close_drops_waiting_frames(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        link, kernel = self.scripted(stack, monkeypatch, -errno.EAGAIN)
        link.send(numbered(0, 8), 0.0)
        link.close()
        link.advance(9.0)
        assert len(kernel.calls) == 1
        assert link.next_time() is None


class TestOpening:
    def test_the_error_names_a_port_in_use(self, stack: ExitStack) -> None:
        first = opened(stack)
        where = re.escape(underlay.text(first.address))
        said = rf"cannot bind {where}: Address already in use \(another process uses this"
        with pytest.raises(OSError, match=said):
            VxlanLink(first.address)

    def test_the_error_names_an_unknown_host(self) -> None:
        with pytest.raises(OSError, match=r"no IPv4 address for 'no\.such\.host\.invalid'"):
            VxlanLink(LOOPBACK, {B: ("no.such.host.invalid", 4789)})

    @pytest.mark.parametrize("vni", [-1, 1 << 24])
    def test_a_vni_has_24_bits(self, vni: int) -> None:
        with pytest.raises(ValueError, match="a VNI is a number from 0 to 16777215"):
            VxlanLink(LOOPBACK, vni=vni)

    def test_a_closed_link_does_nothing(self, stack: ExitStack) -> None:
        link = opened(stack)
        link.close()
        link.close()
        assert link.receive(0.0) is None
        link.send(numbered(0, 1), 0.0)
        link.advance(1.0)
        assert link.counters()["link_kernel_dropped_datagrams"] == 0

    def test_counters_include_datagrams_dropped_by_the_kernel(self, stack: ExitStack, pair: Pair) -> None:
        a, b = pair
        small = stack.enter_context(socket.socket(underlay.family(host_of(stack)), socket.SOCK_DGRAM))
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.bind(loopback(stack))
        os.dup2(small.fileno(), b.fileno())
        a.add_peer(C, b.address)
        a.send(Frames.of([frame(C, A, bytes(1400))] * 200), 0.0)
        assert b.counters()["link_kernel_dropped_datagrams"] > 0
