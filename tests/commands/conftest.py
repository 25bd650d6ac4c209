"""The command line as a user has it: `python -m softnic ...` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

LIMIT_S = 300.0

Start = Callable[..., subprocess.Popen[str]]


def environment() -> dict[str, str]:
    """This process's, with nothing of a job that it may itself be part of."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SOFTNIC_", "OMP_"))}


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `softnic` with these arguments."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "softnic", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment() | env,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)


@pytest.fixture
def softnic(start: Start) -> Callable[..., tuple[int, str, str]]:
    """Runs `softnic` to its end: exit code, stdout, stderr."""

    def call(*arguments: str, **env: str) -> tuple[int, str, str]:
        process = start(*arguments, **env)
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out, err

    return call
