"""Jobs behind NATs that go on: a NAT that forgets its flows, a host that moves, a meeting server that ends.

`pytest -s -m slow tests/cluster/test_nat_moves.py` prints for how long no data arrived.
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
from tests import needs
from tests.meeting.served import COMMAND, PORT, private_file, started, token_for

pytestmark = [needs.nats, pytest.mark.slow]

LIMIT_S = 90.0
STREAM_S = 8.0
CHANGE_S = 2.0
"""From the first block to the change."""
SILENCE_S, SLACK_S = 1.0, 2.0
"""The documented time without data, and what a loaded machine may add."""
Change = Callable[[NatLab, "subprocess.Popen[str]"], None]


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def longest_silence(directory: Path, left: str, right: str, change: Change) -> float:
    """Return for how long no data arrived on the right while something changed for the left site or the server."""
    with NatLab({"left": left, "right": right}) as lab:
        address = lab.server.address, PORT
        server = started(lab.server.start, directory, address)
        token = private_file(directory / "job", token_for(address, 2).text())
        stream = [sys.executable, "-m", "tests.meeting.streamed", str(STREAM_S)]
        sides: list[subprocess.Popen[Any]] = []
        for number, name in enumerate(("left", "right")):
            words = [*COMMAND, "join", f"@{token}", "--ephemeral", "--number", str(number), "--", *stream]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            sides.append(lab.host(name).start(*words, **pipes))
        log = sides[0].stderr
        assert log is not None
        lines = []
        while (line := log.readline()) and line != "sending\n":
            lines.append(line)
        assert line, lines
        time.sleep(CHANGE_S)
        change(lab, server)
        said = [side.communicate(timeout=LIMIT_S) for side in sides]
        assert [side.returncode for side in sides] == [0, 0], said
        silence, blocks = said[1][0].split()
        print(f"\n{left} to {right}: {float(silence):.2f} s without data, {blocks} blocks")
        assert int(blocks) > 100
        return float(silence)


@pytest.mark.parametrize("right", ["open", "full cone", "restricted", "port-restricted"])
def test_a_nat_that_forgets_its_flows_is_followed(directory: Path, right: str) -> None:
    """The NAT of the last one admits nothing from the new port before its host has sent there."""
    silence = longest_silence(directory, "port-restricted", right, lambda lab, _server: lab.rebind("left"))
    assert silence < SILENCE_S + SLACK_S


def test_a_relayed_host_whose_nat_forgets_its_flows_is_followed(directory: Path) -> None:
    silence = longest_silence(directory, "symmetric", "symmetric", lambda lab, _server: lab.rebind("left"))
    assert silence < SILENCE_S + SLACK_S


@pytest.mark.parametrize(("left", "right"), [("open", "full cone"), ("port-restricted", "port-restricted")])
def test_a_host_that_gets_another_address_is_followed(directory: Path, left: str, right: str) -> None:
    silence = longest_silence(directory, left, right, lambda lab, _server: lab.move("left"))
    assert silence < SILENCE_S + SLACK_S


def test_a_job_goes_on_without_its_server(directory: Path) -> None:
    def end(_lab: NatLab, server: subprocess.Popen[str]) -> None:
        server.send_signal(signal.SIGKILL)

    assert longest_silence(directory, "double", "port-restricted", end) < SILENCE_S + SLACK_S
