"""Hosts that join with IPv6 alone, IPv4 alone, both, or a smaller MTU."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.nat_lab.lab import NatLab
from softnic.cluster.nat_lab.site import SitePlan
from tests import needs
from tests.cluster.nat_matrix import DIRECT, RELAYED
from tests.meeting.served import COMMAND, PORT, private_file, started, token_for

pytestmark = [needs.nats, needs.tools("unshare", "mount"), pytest.mark.slow]

LIMIT_S = 90.0
SERVER = "meet.lab"
"""A name with addresses of both families, as the server of hosts with one each needs it."""
WITH_NAMES = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
"""Runs a command in a mount namespace of its own, where /etc/hosts is another file."""


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (SitePlan(kind="mtu 1280"), SitePlan(kind="restricted"), DIRECT),
        (SitePlan(kind="ipv6 only"), SitePlan(kind="ipv6 only"), DIRECT),
        (SitePlan(kind="symmetric", ipv6=True), SitePlan(kind="symmetric", ipv6=True), DIRECT),
        (SitePlan(kind="ipv6 only"), SitePlan(kind="symmetric", ipv6=True), DIRECT),
        (SitePlan(kind="ipv6 only"), SitePlan(kind="full cone"), RELAYED),
    ],
    ids=lambda each: f"{each.kind}{'+ipv6' * each.ipv6}" if isinstance(each, SitePlan) else each,
)
def test_hosts_of_any_family_are_connected(directory: Path, left: SitePlan, right: SitePlan, expected: str) -> None:
    with NatLab({"left": left, "right": right}, ipv6=True) as lab:
        server = lab.server
        started(server.start, directory, ("[::]", PORT))
        names = directory / "hosts"
        names.write_text(f"127.0.0.1 localhost\n{server.address} {SERVER}\n{server.address6} {SERVER}\n")
        token = private_file(directory / "job", token_for((SERVER, PORT), 2).text())
        join = [*COMMAND, "join", f"@{token}", "--ephemeral", "--timeout", "60s"]
        words = [*join, "--", sys.executable, "-m", "tests.meeting.joined"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        inside = ["unshare", "--mount", "sh", "-c", WITH_NAMES, "sh", str(names)]
        sides = [lab.host(name).start(*inside, *words, **pipes) for name in ("left", "right")]
        said = [side.communicate(timeout=LIMIT_S) for side in sides]
    assert [out.strip() for out, _ in said] == [expected, expected], said
