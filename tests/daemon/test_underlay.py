"""NICs whose wires are IPv4, IPv6 or both: streams, queues, keys, narrow paths, and what `stat` and doctor say."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket as stdlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from softnic import socket, underlay
from softnic.cluster.netns_lab.host import NetnsHost, join
from softnic.doctor import path, running
from softnic.doctor.findings import Finding
from softnic.ipc import control
from softnic.ipc.snapshot import PeerWay
from tests import needs
from tests.daemon.nics import WAIT_S, Nic, free_port, pair, read_all, serving
from tests.hosts import HostedNic

V4, V6, BOTH = "127.0.0.1", "::1", "::"

pytestmark = needs.ipv6


@contextlib.contextmanager
def joined(wires: Sequence[str], seen_at: Sequence[str], *flags: str) -> Iterator[list[Nic]]:
    """Yield two NICs that are bound to these addresses, and that know each other by those others."""
    with tempfile.TemporaryDirectory() as path:
        ports = [free_port() for _ in wires]
        nics = [Nic(Path(path), number, ports) for number in range(2)]
        for number, nic in enumerate(nics):
            other = 1 - number
            peer = {other: underlay.text((seen_at[other], ports[other]))}
            nic.set_up(Path(path), number, underlay.text((wires[number], ports[number])), peer, flags)
        with serving(nics):
            yield nics


def exchange(nics: Sequence[Nic], streams: int = 1, size: int = 300_000) -> None:
    """Send bytes over streams both ways."""
    sent = [os.urandom(size) for _ in range(streams)]
    ends = [pair(nics) for _ in sent]
    for (a, _), data in zip(ends, sent, strict=True):
        threading.Thread(target=lambda a=a, data=data: (a.sendall(data), a.shutdown(socket.SHUT_WR))).start()
    for (a, b), data in zip(ends, sent, strict=True):
        with a, b:
            assert read_all(b) == data
            b.sendall(data[:1000])
            assert read_all(a, 1000) == data[:1000]


def way_of(nic: Nic) -> PeerWay:
    """Return the way to the only peer, without its age."""
    with nic.client() as client:
        ways: list[PeerWay] = client.call(control.QueryStats()).ways
    (way,) = ways
    return msgspec.structs.replace(way, age=0.0)


@pytest.mark.parametrize(
    ("wires", "seen_at"),
    [((V6, V6), (V6, V6)), ((BOTH, V4), (V4, V4)), ((BOTH, V6), (V6, V6)), ((BOTH, BOTH), (V4, V4))],
    ids=["IPv6", "both and IPv4", "both and IPv6", "both over IPv4"],
)
def test_a_stream_arrives_unaltered(wires: tuple[str, str], seen_at: tuple[str, str]) -> None:
    with joined(wires, seen_at) as nics:
        exchange(nics)
        for nic, other in zip(nics, reversed(seen_at), strict=True):
            way = way_of(nic)
            assert underlay.parse(way.address)[0] == other
            assert way.family == ("IPv6" if other == V6 else "IPv4")
            assert nic.counters()["link_dropped_unknown_source"] == 0


@pytest.mark.parametrize("key", ["", "5" * 64], ids=["plain", "sealed"])
def test_the_kernel_steers_datagrams_of_ipv6_to_queues(key: str, tmp_path: Path) -> None:
    """The program sees what lies behind the UDP header, with either family."""
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(key)
    with joined((V6, BOTH), (V6, V6), "--queues", "3", *(("--key", str(file)) if key else ())) as nics:
        exchange(nics, streams=16, size=100_000)
        for nic in nics:
            counters = nic.counters()
            assert not counters["rx_drop_steered"]
            assert counters["rx_steered_frames"] < counters["rx_frames"] / 2


@contextlib.contextmanager
def routed(mtu: int) -> Iterator[tuple[NetnsHost, NetnsHost]]:
    """Yield two hosts that have IPv6 alone, and a router between them whose second link is narrower."""
    with NetnsHost() as left, NetnsHost() as router, NetnsHost() as right:
        join(left, router, ipv6=True)
        join(router, right, net=1, devices=("eth1", "eth0"), ipv6=True)
        router.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        for host, device in ((router, "eth1"), (right, "eth0")):
            host.run("ip", "link", "set", device, "mtu", str(mtu))
        for host in (left, right):
            host.run("ip", "route", "add", "default", "via", host.peer)
        left.peer, right.peer = right.address, left.address
        yield left, right


@needs.hosts
def test_a_path_narrower_than_the_interface() -> None:
    """A router reports that packets are too big. Streams go on, in fragments, and doctor says what mtu fits."""
    with routed(1400) as (left, right):
        nics = [HostedNic(left, 0, {1: left.peer}), HostedNic(right, 1, {0: right.peer})]
        with serving(nics):
            exchange(nics, size=2_000_000)
            assert way_of(nics[0]) == PeerWay("10.77.0.2", f"[{right.address}]:4789", "IPv6")
            with left.entered():
                found = running.check([nics[0].path])
            with right.entered():
                found_right = running.check([nics[1].path])
    (narrow,) = [each for each in found if each.check == "mtu"]
    assert narrow.text == "node0 makes packets of 1500 bytes, and the path to 10.77.0.2 takes 1400"
    assert "softnicd --mtu 1330" in narrow.fix
    assert Finding("way", "ok", f"node0 reaches 10.77.0.2 by [{right.address}]:4789 (IPv6)") in found
    assert [each.check for each in found_right if each.level != "ok"] == ["mtu"]  # its own interface


def test_metrics_are_served_over_ipv6() -> None:
    with joined((V6, V6), (V6, V6), "--metrics", "[::1]:0") as nics:
        with nics[0].client() as client:
            host, port = client.info().metrics
        assert host == V6
        connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 200
        connection.close()


def test_a_peer_that_the_wire_does_not_reach_ends_the_start(tmp_path: Path) -> None:
    nic = Nic(tmp_path, 0, [free_port()])
    nic.set_up(tmp_path, 0, f"{V4}:{free_port()}", {1: "[2001:db8::2]:4789"}, ())
    done = subprocess.run(nic.command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode != 0
    text = '[2001:db8::2]:4789 (IPv6) cannot be reached from a socket of IPv4 alone: bind "[::]:PORT", which has both'
    assert done.stderr == f"softnicd: {text}\n"


@needs.hosts
def test_a_host_with_ipv6_disabled_and_the_default_wire() -> None:
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right)
        left.run("sh", "-c", "for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $each; done")
        nics = [HostedNic(left, 0, {1: left.peer}), HostedNic(right, 1, {0: right.peer})]
        for nic in nics:
            at = nic.command.index("--wire")
            del nic.command[at : at + 2]
        with serving(nics):
            exchange(nics)
            assert way_of(nics[0]) == PeerWay("10.77.0.2", f"{right.address}:4789", "IPv4")


@needs.hosts
def test_link_local_addresses_with_their_interface() -> None:
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right, ipv6=True)
        for number, host in enumerate((left, right), 1):
            host.run("ip", "addr", "add", f"fe80::77:{number}/64", "dev", "eth0", "nodad")
        left.address, right.address = "fe80::77:1%eth0", "fe80::77:2%eth0"
        nics = [HostedNic(left, 0, {1: right.address}), HostedNic(right, 1, {0: left.address})]
        with serving(nics):
            exchange(nics)
            assert way_of(nics[0]) == PeerWay("10.77.0.2", "[fe80::77:2%eth0]:4789", "IPv6")


@needs.hosts
def test_kernels_and_nics_exchange_frames_over_ipv6() -> None:
    with NetnsHost() as plain, NetnsHost() as host:
        join(plain, host, ipv6=True)
        plain.vxlan(0)
        nic = HostedNic(host, 1, {0: host.peer})
        with serving([nic]):
            with plain.entered():
                server = stdlib.create_server(("10.77.0.1", 0))
            with server, nic.connect(server.getsockname()) as a, server.accept()[0] as b:
                data = os.urandom(500_000)
                thread = threading.Thread(target=a.sendall, args=(data,))
                thread.start()
                assert read_all(b, len(data)) == data
                thread.join()
                b.sendall(data[:50_000])
                assert read_all(a, 50_000) == data[:50_000]


@needs.hosts
def test_doctor_names_the_family_that_a_host_lacks() -> None:
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right, ipv6=True)
        with left.entered():
            checked = path.check(path.PathSettings(("192.0.2.9", 4789), measure=False))
    (finding,) = checked.findings
    assert (finding.check, finding.level) == ("way", "problem")
    assert finding.text.startswith("no way to 192.0.2.9:4789 (IPv4): Network is unreachable; this host has ")
