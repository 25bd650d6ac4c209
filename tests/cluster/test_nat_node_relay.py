"""Two hosts behind symmetric NATs that a third host of their job relays for.

`pytest -s -m slow tests/cluster/test_nat_node_relay.py` prints for how long no data arrived.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from softnic.cluster.nat_lab.lab import NatLab
from softnic.cluster.nic_process import node_ip
from tests import needs
from tests.meeting.served import COMMAND, PORT, private_file, started, token_for

pytestmark = [needs.nats, pytest.mark.slow]

LIMIT_S = 90.0
STREAM_S = 10.0
CHANGE_S = 2.0
RELAYING = 2
SILENCE_S, SLACK_S = 3.0, 3.0
"""The time after which a way is given up (docs/meeting.md), and what a loaded machine may add."""
Processes = list["subprocess.Popen[Any]"]


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def streamed(
    directory: Path, *server_flags: str, change: Callable[[subprocess.Popen[Any]], None] | None = None
) -> list[tuple[float, list[str]]]:
    """Return what each side says: how long it got nothing, and by which relays. `change` gets the relaying host."""
    with NatLab({"left": "symmetric", "right": "symmetric", "relaying": "open"}) as lab:
        address = lab.server.address, PORT
        started(lab.server.start, directory, address, *server_flags)
        token = private_file(directory / "job", token_for(address, 3).text())
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        hosts: Processes = []
        for number, name in enumerate(("left", "right", "relaying")):
            flags = ["--ephemeral", "--number", str(number), *["--relay"] * (number == RELAYING)]
            program = ["sleep", str(LIMIT_S)]
            if number != RELAYING:
                program = [sys.executable, "-m", "tests.meeting.streamed_by_relay", str(STREAM_S)]
                program += [str(number), str(1 - number)]
            words = [*COMMAND, "join", f"@{token}", *flags, "--", *program]
            hosts.append(lab.host(name).start(*words, **pipes))
        *sides, relaying = hosts
        log = sides[0].stderr
        assert log is not None
        while (line := log.readline()) and line != "sending\n":
            pass
        assert line
        if change is not None:
            time.sleep(CHANGE_S)
            change(relaying)
        said = [side.communicate(timeout=LIMIT_S) for side in sides]
        relaying.kill()
        relaying.communicate(timeout=LIMIT_S)
        assert [side.returncode for side in sides] == [0, 0], said
        found = [(float(out.split()[0]), out.split()[1:]) for out, _ in said]
    print(f"\n{found}")
    return found


def test_a_third_host_relays_where_no_server_does(directory: Path) -> None:
    for silence, relays in streamed(directory, "--no-relay"):
        assert relays == [node_ip(RELAYING)]
        assert silence < SLACK_S


def test_a_server_takes_over_when_the_relaying_host_ends(directory: Path) -> None:
    found = streamed(directory, change=lambda relaying: relaying.send_signal(signal.SIGKILL))
    for silence, relays in found:
        assert relays[-2:] == [node_ip(RELAYING), "server"]
        assert silence < SILENCE_S + SLACK_S
