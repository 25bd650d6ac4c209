"""The deployment page from two bare hosts to a training, as written."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.netns_lab.host import WIRE_PORT, NetnsHost, join
from tests import needs
from tests.peers.booted import RUN_S, BootedHost, booted, finish, missing

pytestmark = [
    pytest.mark.slow,
    needs.hosts,
    needs.tools("systemd-nspawn", "systemctl", "openssl", "unshare"),
    pytest.mark.needs.with_args(missing),
]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text()
STEPS = re.findall(r"<!-- on: (.*?) -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
"""Where, and which commands."""
SCP = """#!/bin/sh
for to; do :; done
to=$HOSTS/$(expr "$to" : 'root@\\(.*\\):')
while [ $# -gt 1 ]; do [ "$1" = -r ] || cp -r "$1" "$to"; shift; done
"""
"""Instead of the network between the machine that builds and the hosts."""


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with what the build copies to each host, in one named after it."""
    base = tmp_path_factory.mktemp("build")
    source, hosts, scp = base / "source", base / "hosts", base / "bin" / "scp"
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", ".*", "build", "tests", "results", "figures")
    shutil.copytree(ROOT, source, ignore=ignored)
    for host in ("node0", "node1"):
        (hosts / host).mkdir(parents=True)
    scp.parent.mkdir()
    scp.write_text(SCP)
    scp.chmod(0o755)
    [commands] = [commands for where, commands in STEPS if where == "build"]
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environment |= {"HOSTS": str(hosts), "PATH": f"{scp.parent}:{os.environ['PATH']}"}
    built = subprocess.run(
        ["bash", "-ec", commands], cwd=source, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if "No matching distribution found" in built.stderr:
        needs.skip("the package index cannot be reached")
    assert built.returncode == 0, built.stdout + built.stderr
    return hosts


@pytest.fixture(scope="module")
def hosts(delivered: Path) -> Iterator[dict[str, BootedHost]]:
    with contextlib.ExitStack() as stack:
        left, right = (stack.enter_context(NetnsHost()) for _ in range(2))
        join(left, right)
        both = {f"node{index}": stack.enter_context(booted(host)) for index, host in enumerate((left, right))}
        for name, host in both.items():
            host.copy(delivered / name)
        yield both


def wait_for_listener(booted_host: BootedHost) -> None:
    """Wait as long as a reader takes to go to the other host."""
    until = time.monotonic() + RUN_S
    with booted_host.host.entered():
        while time.monotonic() < until:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", WIRE_PORT), 5).close()
                return
            time.sleep(0.1)
    raise AssertionError("nothing listens")


def test_the_page_ends_in_a_training(hosts: dict[str, BootedHost]) -> None:
    together: list[subprocess.Popen[bytes]] = []
    said: dict[str, str] = {}
    for where, commands in STEPS:
        name, _, how = where.partition(" ")
        if how == "together":
            together.append(hosts[name].start(commands))
            continue
        if together:
            said["training"] = "".join(map(finish, together))
            together = []
        for each in {"both": ["node0", "node1"], "build": []}.get(name, [name]):
            said[each] = hosts[each].run(commands)
            if "--listen" in commands:
                wait_for_listener(hosts[each])
    assert re.search(r"step 60 on 2 ranks: loss 0\.0", said["training"]), said["training"]
    for name in hosts:
        assert re.search(r"tx_offload_encoded_bytes +[1-9]", said[name]), said[name]
