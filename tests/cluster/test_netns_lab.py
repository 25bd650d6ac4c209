"""Virtual hosts and cables, which other tests use."""

from __future__ import annotations

import contextlib
import re
import socket as plain
import struct
import subprocess
from pathlib import Path

import pytest

from softnic.cluster.netns_lab.cable import VNI, Cable, bad_cable
from softnic.cluster.netns_lab.host import NIC_MTU, RUN_S, HostError, NetnsHost, join
from tests import needs
from tests.daemon.nics import free_port


def devices() -> str:
    return re.sub(r":.*", "", Path("/proc/self/net/dev").read_text())


@needs.hosts
@needs.tools("ping")
def test_hosts_on_a_cable_reach_each_other_and_nothing_else() -> None:
    before, fds = devices(), len(list(Path("/proc/self/fd").iterdir()))
    with NetnsHost() as left, NetnsHost() as right:
        join(left, right)
        left.run("ping", "-c", "1", "-w", "20", left.peer)
        with left.entered():
            server = plain.create_server((left.address, 0))
        with right.entered():
            client = plain.create_connection(server.getsockname(), timeout=RUN_S)
        with server, client, server.accept()[0] as accepted:
            assert accepted.getpeername()[0] == right.address
        left.directory.joinpath("file").touch()
    assert devices() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == fds
    assert not left.directory.exists()


@needs.hosts
def test_processes_end_with_their_host() -> None:
    with NetnsHost() as host:
        process = host.start("sleep", "1000")
    assert process.returncode == -9


@needs.hosts
@needs.tools("ping")
@pytest.mark.slow
def test_a_bad_cable_emulates_the_requested_faults() -> None:
    bad = {"delay": "10ms", "loss": "30%", "duplicate": "10%"}
    with NetnsHost() as left, NetnsHost() as right, bad_cable(left, right, bad) as cable:
        left.vxlan(0)
        right.vxlan(1)
        for _ in range(6):  # until ARP has succeeded: one attempt in eight loses all of its requests
            with contextlib.suppress(HostError):
                left.run("ping", "-c", "1", "-w", "20", "10.77.0.2")
                break
        output = left.run("ping", "-c", "200", "-i", "0.002", "-W", "1", "10.77.0.2")
        counted = cable.counters()
    rtt = re.search(r"min/avg/max/mdev = ([\d.]+)/", output)
    assert rtt is not None
    assert float(rtt[1]) >= 20
    assert counted["sent"] > 150
    assert 0.2 < counted["lost"] / counted["sent"] < 0.4
    assert counted["duplicated"] > 10
    assert counted["missed"] == 0


def wire() -> plain.socket:
    """A UDP socket in place of a host's VXLAN device."""
    made = plain.socket(plain.AF_INET, plain.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.settimeout(RUN_S)
    return made


def datagram(to: int, sender: int, text: bytes = b"") -> bytes:
    """VXLAN (RFC 7348) with a frame between two stations; 0 is none."""
    header = struct.pack("!II", 1 << 27, VNI << 8)
    return header + (2 << 40 | to).to_bytes(6) + (2 << 40 | sender).to_bytes(6) + b"\x88\xb5" + text.ljust(46)


def test_hosts_that_share_a_cable_get_their_own_frames_only() -> None:
    count = 50
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(wire()) for _ in range(4)]
        hosts, (left, right) = [each.getsockname() for each in wires], [("127.0.0.1", free_port()) for _ in range(2)]
        cable = Cable(subprocess.Popen, [(left, *hosts[:2]), (right, *hosts[2:])], {"delay": "1ms"}, 1, NIC_MTU)
        stack.enter_context(cable)
        senders, receivers = wires[:2], wires[2:]
        for number, receiver in enumerate(receivers):  # so that the cable knows where the stations are
            receiver.sendto(datagram(0, 3 + number), right)
        for sender in senders:
            assert [sender.recv(2048)[8:20] for _ in receivers]
        for number in range(count):
            for station, sender in enumerate(senders):
                sender.sendto(datagram(3 + station, 1 + station, b"%d" % number), left)
        for station, receiver in enumerate(receivers):
            assert [receiver.recv(2048) for _ in range(count)] == [
                datagram(3 + station, 1 + station, b"%d" % number) for number in range(count)
            ]
