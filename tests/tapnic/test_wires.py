"""NICs of kernels with encrypted links, captures, slow links at shutdown, and routed networks."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softnic.capture import reader
from softnic.capture.flows import Analysis
from softnic.capture.streams import stream_bytes
from softnic.cluster.kernel import KernelCluster
from softnic.commands.capture import recording
from softnic.tapnic import namespaces
from tests import needs
from tests.tapnic.kernels import PATIENCE_S, Program
from tests.tapnic.test_kernels import assert_rounded, send, words

pytestmark = needs.kernels


def test_a_capture_of_an_encrypted_link_shows_plain_frames_on_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "job.pcapng"
    with KernelCluster(nodes=2, loss="2%", seed=3, codec="bounded:10", key=True) as cluster:
        with recording([str(path) for path in cluster.controls], file):
            got = send(cluster, tmp_path / "got", 0x28)
        counters = [cluster.stats(node).counters for node in range(2)]
    assert_rounded(got, "bounded:10")
    assert [each["link_sessions"] for each in counters] == [1, 1]
    assert counters[0]["emulated_lost"] > 0
    analysis = Analysis(reader.read(file))
    names = [interface.name for interface in analysis.capture.interfaces]
    views = {names[view.interface]: view for view in analysis.flows[0].views}
    assert stream_bytes(analysis, views["node0:host"]) == words()
    assert stream_bytes(analysis, views["node0:wire"]) == got
    assert stream_bytes(analysis, views["node1:host"]) == got
    assert views["node0:wire"].tagged_payload_bytes < views["node0:host"].tagged_payload_bytes / 2


def test_a_nic_sends_the_last_frames_of_its_kernel_before_it_exits() -> None:
    receiver = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.2', 5000));"
        "s.settimeout(60);"
        "print(flush=True); peer = s.recvfrom(9)[1]; s.sendto(b'there', peer); print(s.recv(9).decode())"
    )
    sender = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); there = ('10.77.0.2', 5000);"
        "s.sendto(b'here', there); s.recv(9); s.sendto(b'last', there); print(flush=True)"
    )
    with KernelCluster(nodes=2, delay="250ms") as cluster, Program(cluster, 1, receiver) as receiving:
        receiving.line()
        with Program(cluster, 0, sender) as sending:
            sending.line()
            cluster.nics[0].signal(signal.SIGTERM)
            assert cluster.nics[0].wait(PATIENCE_S) == 0
        assert receiving.end() == "last\n"


@contextmanager
def narrow_network(cluster: KernelCluster, mtu: int) -> Iterator[list[str]]:
    """Makes node 1 a router: behind it lies 10.78.0.2, where packets are no longer than `mtu` bytes. Gives what runs a
    command there."""

    def run(*argv: str) -> None:
        subprocess.run(argv, check=True, capture_output=True)

    at_router = cluster.within(1, [])
    holder = cluster.within(1, namespaces.program("hold"))
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        pid = held.stdout.readline().strip()
        beyond = namespaces.program("enter", pid)
        run(
            *at_router,
            "ip",
            "link",
            "add",
            "near",
            "mtu",
            str(mtu),
            "type",
            "veth",
            "peer",
            "name",
            "far",
            "netns",
            pid,
        )
        run(*at_router, "ip", "addr", "add", "10.78.0.1/24", "dev", "near")
        run(*at_router, "ip", "link", "set", "near", "up")
        run(*at_router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        run(*beyond, "ip", "addr", "add", "10.78.0.2/24", "dev", "far")
        run(*beyond, "ip", "link", "set", "far", "up")
        run(*beyond, "ip", "route", "add", "default", "via", "10.78.0.1")
        run(*cluster.within(0, ["ip", "route", "add", "10.78.0.0/24", "via", "10.77.0.2"]))
        yield beyond
        held.stdin.close()


SEND = """
import socket, struct
s = socket.create_connection(("10.78.0.2", 5000))
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: always
s.sendall(bytes(range(256)) * 2000)
s.shutdown(socket.SHUT_WR)
s.recv(1)
repeated = struct.unpack_from("=I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]  # in all
print(s.getsockopt(socket.IPPROTO_IP, 14), repeated)  # IP_MTU
"""
COMPARE = """
import socket
server = socket.create_server(("10.78.0.2", 5000))
print(flush=True)
peer, _ = server.accept()
data = bytearray()
while part := peer.recv(1 << 16):
    data += part
assert data == bytes(range(256)) * 2000
"""


@needs.tools("ip")
def test_a_kernel_discovers_the_path_mtu() -> None:
    """RFC 1191: of the router, by ICMP; what the NICs join on the way must not come out longer than it was sent."""
    with (
        KernelCluster(nodes=2) as cluster,
        narrow_network(cluster, 1300) as beyond,
        subprocess.Popen([*beyond, sys.executable, "-c", COMPARE], stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        server.stdout.readline()
        with Program(cluster, 0, SEND) as client:
            path_mtu, repeated = map(int, client.end().split())
        assert path_mtu == 1300
        assert repeated < 50  # of 410: those in flight when the ICMP message arrived
        assert server.wait(PATIENCE_S) == 0


def test_fragments_cross() -> None:
    echo = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.2', 5000));"
        "print(flush=True); s.sendto(*s.recvfrom(9999))"
    )
    client = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.sendto(bytes(range(250)) * 20, ('10.77.0.2', 5000)); assert s.recv(9999) == bytes(range(250)) * 20"
    )
    with KernelCluster(nodes=2) as cluster, Program(cluster, 1, echo) as echoing:
        echoing.line()
        with Program(cluster, 0, client) as sending:
            sending.end()
        counters = cluster.stats(0).counters
    assert counters["tx_other_frames"] >= 4  # the datagram takes four packets
    assert counters["rx_other_frames"] >= 4
