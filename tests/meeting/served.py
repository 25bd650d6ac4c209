"""A meeting server as users run it, and tokens for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softnic.link.reach.token import Grant, Token
from softnic.underlay import Address
from tests.daemon.nics import free_port

SECRET = bytes(range(32))
PORT = 9470
LIMIT_S = 60.0
COMMAND = (sys.executable, "-m", "softnic")

ATTEMPTS = 5
"""The server takes two further ports, which another process may have."""


class PortInUse(Exception):
    """The server did not start; the text is what it says."""


Starter = Callable[..., subprocess.Popen[Any]]


def token_for(server: Address, nodes: int) -> Token:
    grant = Grant(os.urandom(16), nodes, int(time.time()) + 3600)
    return Token.make(SECRET, [server], grant, os.urandom(32))


def private_file(path: Path, text: str) -> Path:
    """Write a file that only its owner may read."""
    path.touch(0o600)
    path.write_text(text)
    return path


@contextmanager
def served(directory: Path, *flags: str) -> Iterator[tuple[Address, subprocess.Popen[str]]]:
    """Yield the address of a meeting server on loopback, and its process."""
    relay = 20_000 + os.getpid() % 10_000
    more = ["--relay-ports", f"{relay}-{relay + 20}", *flags]
    for attempt in range(ATTEMPTS):
        address = ("127.0.0.1", free_port())
        try:
            process = started(subprocess.Popen, directory, address, *more)
            break
        except PortInUse:
            assert attempt < ATTEMPTS - 1
    try:
        yield address, process
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def started(start: Starter, directory: Path, address: Address, *flags: str) -> subprocess.Popen[str]:
    """Start a meeting server, and return its process once it listens. Raises PortInUse if it ends.

    Parameters
    ----------
    start
        Popen itself, or what starts a process on a host of a lab.
    directory
        Gets the server's secret.
    address
        Where it listens.
    flags
        More of `softnic meet`.
    """
    secret = private_file(directory / "meeting.secret", SECRET.hex())
    where = f"{address[0]}:{address[1]}"
    argv = [*COMMAND, "meet", "--listen", where, "--secret", str(secret), *flags]
    process = start(*([argv] if start is subprocess.Popen else argv), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    if "listens" not in line:
        process.kill()
        process.communicate(timeout=LIMIT_S)
        raise PortInUse(line)
    return process
