"""Programs that know nothing of softnic, under `softnic exec` and after `softnic.install()`: tests/daemon/programs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.daemon.nics import WAIT_S, Nic

FOLDER = Path(__file__).parent / "programs"
MODULES = {
    "aiohttp": ["aiohttp"],
    "dask": ["distributed"],
    "flask": ["flask", "requests"],
    "gevent": ["gevent"],
    "gunicorn": ["gunicorn"],
    "paramiko": ["paramiko"],
    "pyro5": ["Pyro5"],
    "redis": ["redis"],
    "rpyc": ["rpyc"],
    "tornado": ["tornado"],
    "trio": ["trio"],
    "uvicorn": ["uvicorn"],
    "uvloop": ["uvloop"],
    "websockets": ["websockets"],
}
QUICK = ("flask", "redis", "uvicorn")
"""Programs that are not marked slow."""
NOT_AFTER_INSTALL = ("redis", "uvicorn", "uvloop")
"""A server in C, workers that are new interpreters, sockets made in C."""
EXEC = [sys.executable, "-m", "softnic", "exec", "--"]
INSTALL = [
    sys.executable,
    "-c",
    "import runpy, sys, softnic\nsoftnic.install()\nsys.argv.pop(0)\nrunpy.run_path(sys.argv[0], run_name='__main__')",
]
"""Runs a program after `softnic.install()`, its first line."""


def cases(names: list[str], quick: tuple[str, ...]) -> list[Any]:
    """The programs; those that are not quick are marked slow, and redis needs its server."""
    return [
        pytest.param(
            name,
            marks=[
                *([] if name in quick else [pytest.mark.slow]),
                *([needs.tools("redis-server")] if name == "redis" else []),
            ],
        )
        for name in names
    ]


@contextlib.contextmanager
def started(nic: Nic, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A program of a node, which is killed at the end."""
    environment = {**os.environ, "SOFTNIC_NIC": nic.path, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)  # its workers too


def serve_and_ask(nics: list[Nic], name: str, launcher: list[str]) -> None:
    absent = [module for module in MODULES[name] if not needs.is_installed(module)]
    if absent:
        needs.skip(f"not installed: {', '.join(absent)} (pip install 'softnic[programs]')")
    accepted = nics[0].counters()["connections_accepted"]
    program = [*launcher, *([sys.executable] if launcher is EXEC else []), str(FOLDER / f"with_{name}.py")]
    with started(nics[0], [*program, "server"]) as server:
        assert server.stdout is not None
        output: list[str] = []
        for line in server.stdout:
            output.append(line)
            if "ready" in line:
                break
        else:
            pytest.fail("the server ended:\n" + "".join(output))
        with started(nics[1], [*program, "client"]) as client:
            told, _ = client.communicate(timeout=2 * WAIT_S)
        assert client.returncode == 0, told
    assert nics[0].counters()["connections_accepted"] > accepted  # through the NICs, not around them


@pytest.mark.parametrize("name", cases(list(MODULES), QUICK))
def test_a_program_runs_unchanged(named: list[Nic], name: str) -> None:
    serve_and_ask(named, name, EXEC)


@pytest.mark.parametrize("name", cases([name for name in MODULES if name not in NOT_AFTER_INSTALL], ("trio",)))
def test_a_program_runs_after_install(named: list[Nic], name: str) -> None:
    serve_and_ask(named, name, INSTALL)
