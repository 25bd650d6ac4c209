"""`softnic top`: one page without a terminal, live with keys in one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softnic import Cluster
from tests.commands.test_stat import floats_sent

Softnic = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with floats_sent("bounded:10") as (cluster, _client, _server):
        yield cluster


def test_once_prints_nics_and_connections(cluster: Cluster, softnic: Softnic) -> None:
    paths = [f"--nic={path}" for path in cluster.controls]
    code, out, err = softnic("top", "--once", "--interval", "0.1", "--sort", "rtt", *paths)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith("  2 NICs, 2 connections, by rtt")
    nics = [line.split()[:2] for line in lines[1:4]]
    assert nics == [["nic", "address"], ["node0", "10.77.0.1"], ["node1", "10.77.0.2"]]
    assert re.search(r"[0-9.]+%  +[0-9.]+ MB +1 ", lines[2])
    ends = {tuple(line.split()[:3:2]) for line in lines[-2:]}
    assert ("node0", "10.77.0.2:5000") in ends
    [sender] = [line for line in lines[-2:] if line.startswith("node0")]
    assert sender.endswith("0x28 bounded:10")


def test_without_a_terminal_one_page_is_printed(cluster: Cluster, softnic: Softnic) -> None:
    code, out, _ = softnic("top", "--interval", "0.1", SOFTNIC_NIC=str(cluster.controls[1]))
    assert code == 0
    assert out.splitlines()[0].endswith("  1 NIC, 1 connection, by rate")


class Terminal:
    """A command in a terminal of 30 lines with 130 columns."""

    def __init__(self, *command: str) -> None:
        self.end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 30, 130, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("SOFTNIC_NIC", None)
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.text = ""

    def until(self, text: str) -> None:
        """Read until this text has come since the last call."""
        while text not in self.text:
            data = os.read(self.end, 1 << 16)
            assert data, self.text
            self.text += data.decode()
        self.text = ""

    def press(self, key: str) -> None:
        os.write(self.end, key.encode())


def test_keys_sort_pause_and_quit(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "softnic", "top", "--interval", "0.1", "--nic", str(cluster.controls[0])]
    terminal = Terminal(*command)
    try:
        terminal.until("s sort: rate")
        terminal.press("s")
        terminal.until("s sort: wire")
        terminal.press("p")
        terminal.until("p continue")
        terminal.press("p")
        terminal.until("p pause")
        terminal.press("q")
        assert terminal.process.wait(60) == 0
        assert termios.tcgetattr(terminal.end)[3] & termios.ECHO, "the terminal shows what is typed again"
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.end)


def test_it_waits_for_a_nic(tmp_path: Path) -> None:
    terminal = Terminal(sys.executable, "-m", "softnic", "top", "--interval", "0.1", "--nic", str(tmp_path / "none"))
    try:
        terminal.until("no NIC answers at")
        terminal.press("q")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.end)
