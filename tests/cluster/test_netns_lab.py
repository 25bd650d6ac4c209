"""Virtual hosts and cables, which other tests use."""

from __future__ import annotations

import contextlib
import re
import socket as plain
from pathlib import Path

import pytest

from softnic.cluster.netns_lab.cable import bad_cable
from softnic.cluster.netns_lab.host import RUN_S, HostError, NetnsHost, join
from tests import needs

pytestmark = needs.hosts


def devices() -> str:
    return re.sub(r":.*", "", Path("/proc/self/net/dev").read_text())


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


def test_processes_end_with_their_host() -> None:
    with NetnsHost() as host:
        process = host.start("sleep", "1000")
    assert process.returncode == -9


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
