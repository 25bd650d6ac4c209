"""A plain Linux host joins by a kernel VXLAN device: ARP, echo, and TCP in both directions."""

from __future__ import annotations

import contextlib
import re
import socket as plain
import struct

import pytest

from softnic import socket
from softnic.cluster.netns_lab.host import NIC_MTU
from softnic.packet.ethernet import mac_of
from tests import needs
from tests.daemon.nics import read_all, until
from tests.peers.kernel_info import KernelInfo
from tests.peers.sides import LIMIT_S, OURS, SIDES, Side, Sides, exchange

pytestmark = needs.hosts

both_open = pytest.mark.parametrize("opener", SIDES)
both_sides = pytest.mark.parametrize("side", SIDES)
MB = 1_000_000


class TestBelowTcp:
    @needs.tools("ping")
    def test_arp_finds_the_nic(self, joined: Sides) -> None:
        joined.plain.run("ip", "neigh", "flush", "dev", "vx0")
        joined.plain.run("ping", "-c", "1", "-w", "20", OURS)
        found = joined.plain.run("ip", "neigh", "show", OURS, "dev", "vx0")
        assert mac_of(struct.unpack("!I", plain.inet_aton(OURS))[0]).hex(":") in found

    @needs.tools("ping")
    @pytest.mark.parametrize("size", [0, 1, 1000, NIC_MTU - 28])
    def test_echo(self, joined: Sides, size: int) -> None:
        said = joined.plain.run("ping", "-c", "5", "-i", "0.002", "-w", "20", "-s", str(size), OURS)
        assert "5 received" in said

    def test_who_is_not_there_is_not_reached(self, joined: Sides) -> None:
        """The NIC answers ARP requests for its own address only."""
        with joined.plain.entered(), plain.socket(plain.AF_INET, plain.SOCK_DGRAM) as asking:
            asking.sendto(b"?", ("10.77.0.99", 7))
        until(lambda: "10.77.0.99" in joined.plain.run("ip", "neigh", "show", "dev", "vx0"))
        found = joined.plain.run("ip", "neigh", "show", "10.77.0.99", "dev", "vx0")
        assert "lladdr" not in found


class TestConnections:
    @both_open
    def test_bytes_arrive_both_ways_at_once(self, joined: Sides, opener: Side) -> None:
        with joined.connection(opener) as (kernel, ours):
            exchange((kernel, ours, 4 * MB), (ours, kernel, 4 * MB))
            assert KernelInfo.of(kernel).options == {"sack", "timestamps", "window scaling"}
            assert KernelInfo.of(kernel).mss == NIC_MTU - 40 - 12

    @both_open
    def test_either_end_may_end_first(self, joined: Sides, opener: Side) -> None:
        for first in (0, 1):
            with joined.connection(opener) as ends:
                ends[first].shutdown(plain.SHUT_WR)
                assert ends[1 - first].recv(1) == b""
                exchange((ends[1 - first], ends[first], 100_000))

    @both_open
    def test_a_reset_is_one_on_the_other_side(self, joined: Sides, opener: Side) -> None:
        for first in (0, 1):
            with joined.connection(opener) as ends:
                ends[first].setsockopt(plain.SOL_SOCKET, plain.SO_LINGER, struct.pack("ii", 1, 0))
                ends[first].close()
                with pytest.raises(ConnectionResetError):
                    ends[1 - first].recv(1)

    @both_sides
    def test_where_nobody_listens_a_connection_is_refused(self, joined: Sides, side: Side) -> None:
        with joined.serve("ours" if side == "kernel" else "kernel") as server:
            address = server.getsockname()
        with pytest.raises(ConnectionRefusedError):
            joined.connect(side, address)

    @both_open
    def test_many_connections_one_after_the_other(self, joined: Sides, opener: Side) -> None:
        with joined.serve("ours" if opener == "kernel" else "kernel") as server:
            for number in range(100):
                with joined.connect(opener, server.getsockname()) as opened, server.accept()[0] as accepted:
                    opened.sendall(b"%d" % number)
                    opened.shutdown(plain.SHUT_WR)
                    assert read_all(accepted) == b"%d" % number

    @both_open
    def test_many_connections_at_once(self, joined: Sides, opener: Side) -> None:
        with contextlib.ExitStack() as stack:
            pairs = [stack.enter_context(joined.connection(opener)) for _ in range(12)]
            exchange(*(way for kernel, ours in pairs for way in ((kernel, ours, 200_000), (ours, kernel, 200_000))))


class TestWindows:
    """Zero windows: the sender waits, probes (RFC 9293, 3.8.6.1), and continues when the reader reads."""

    @pytest.mark.parametrize("reader", SIDES)
    def test_a_closed_window_opens_again(self, joined: Sides, reader: Side) -> None:
        with joined.connection("kernel") as (kernel, ours):
            source, target = (ours, kernel) if reader == "kernel" else (kernel, ours)
            sent = _fill(source)
            source.setblocking(True)
            source.settimeout(LIMIT_S)
            source.shutdown(plain.SHUT_WR)
            assert read_all(target) == bytes(sent)

    def test_a_kernel_with_a_tiny_buffer(self, joined: Sides) -> None:
        """Windows of less than a segment, again and again."""
        with joined.serve("kernel") as server:
            server.setsockopt(plain.SOL_SOCKET, plain.SO_RCVBUF, 2304)
            with joined.connect("ours", server.getsockname()) as ours, server.accept()[0] as kernel:
                kernel.settimeout(LIMIT_S)
                ours.settimeout(LIMIT_S)
                exchange((ours, kernel, 200_000))


def _fill(source: plain.socket) -> int:
    """Writes zeros until none is accepted for a tenth of a second; returns the number written."""
    source.settimeout(0.1)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            sent += source.send(bytes(1 << 16))
    return sent


class TestOptions:
    """TCP options that the kernel does not offer are used by neither side."""

    @both_open
    @pytest.mark.parametrize(
        ("absent", "left"),
        [
            ({"tcp_sack": 0}, {"timestamps", "window scaling"}),
            ({"tcp_timestamps": 0}, {"sack", "window scaling"}),
            ({"tcp_window_scaling": 0}, {"timestamps", "sack"}),
            ({"tcp_sack": 0, "tcp_timestamps": 0, "tcp_window_scaling": 0}, set()),
        ],
        ids=["no SACK", "no timestamps", "no window scaling", "none"],
    )
    def test_fewer(self, joined: Sides, opener: Side, absent: dict[str, int], left: set[str]) -> None:
        joined.plain.set(**absent)
        try:
            with joined.connection(opener) as (kernel, ours):
                assert KernelInfo.of(kernel).options == left
                exchange((kernel, ours, MB), (ours, kernel, MB))
        finally:
            joined.plain.set(**dict.fromkeys(absent, 1))

    def test_a_smaller_mss(self, joined: Sides) -> None:
        with joined.serve("ours") as server, joined.kernel_socket() as kernel:
            kernel.setsockopt(plain.IPPROTO_TCP, plain.TCP_MAXSEG, 536)
            kernel.connect(server.getsockname())
            with server.accept()[0] as ours:
                ours.settimeout(LIMIT_S)
                assert socket.info(ours).mss <= 536
                exchange((kernel, ours, 200_000), (ours, kernel, 200_000))


def test_floats_for_a_kernel_travel_as_they_are(joined: Sides) -> None:
    """It does not negotiate, so a tagged stream arrives unaltered; its own tag means nothing to us."""
    with joined.connection("ours") as (kernel, ours):
        assert socket.info(ours).peer_codecs is None
        for end in (kernel, ours):
            end.setsockopt(plain.IPPROTO_IP, plain.IP_TOS, 0x28)
        exchange((kernel, ours, 400_001), (ours, kernel, 400_003))


def test_the_nic_counted_no_wrong_frame(joined: Sides) -> None:
    """None of the kernel's frames in these tests was counted as damaged."""
    wrong = {name: n for name, n in joined.nic.counters().items() if n and re.search("checksum|malformed", name)}
    assert not wrong
