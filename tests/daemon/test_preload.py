"""Programs of any language use a NIC unchanged, through the preloaded library."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from softnic import preload
from tests import needs
from tests.daemon.nics import WAIT_S, Nic
from tests.facades.cluster import read_stats

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    *("names", "loopback", "ignored", "tags", "transfers", "nonblocking", "options"),
    *("shared_ports", "processes", "threads", "both_families", "others"),
)
RARE = ("lingering", "rare_transfers", "resolving", "six_options")


def run(nic: Nic, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=preload.environment(nic.path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@contextmanager
def server(nic: Nic, port: int, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, from when it listens at a port of its node until the end of the block."""
    process = subprocess.Popen(
        command, env=preload.environment(nic.path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while not any(
            stream.state == "LISTEN" and stream.local[1] == port for stream in read_stats(Path(nic.path)).streams
        ):
            assert process.poll() is None, f"{command[0]} has ended"
            assert time.monotonic() < deadline, f"{command[0]} does not listen"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_of_the_c_library(nics: list[Nic], name: str) -> None:
    done = run(nics[0], sys.executable, "-S", "-m", "tests.daemon.preloaded", name, nics[0].ip, nics[1].ip)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("name", RARE)
def test_rare_calls(nics: list[Nic], name: str) -> None:
    done = run(nics[0], sys.executable, "-S", "-m", "tests.daemon.preloaded_calls", name, nics[0].ip, nics[1].ip)
    assert done.stdout == "done\n", done.stderr


def test_a_child_of_vfork_leaves_its_parent_s_connection_alone(nics: list[Nic], tmp_path: Path) -> None:
    compiler = shutil.which("cc") or needs.skip("not installed: cc (apt-get install gcc)")
    program = tmp_path / "vfork"
    subprocess.run([compiler, "-o", program, ROOT / "tests" / "daemon" / "programs" / "vfork.c"], check=True)
    done = run(nics[0], str(program))
    assert done.stdout == "2 sockets, 0 descriptors more\n", done.stderr


def test_without_a_nic_nothing_changes_and_a_nic_that_is_gone_is_an_error(tmp_path: Path) -> None:
    code = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[0])"
    environment = preload.environment(tmp_path / "no.sock")
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "Network is down" in done.stderr
    del environment["SOFTNIC_NIC"]
    assert subprocess.check_output(command, env=environment, text=True, timeout=WAIT_S) == "127.0.0.1\n"


def test_libraries_that_are_preloaded_already_stay() -> None:
    own = str(preload.library())
    assert preload.environment("n", {"LD_PRELOAD": "a.so:b.so"})["LD_PRELOAD"].split() == [own, "a.so", "b.so"]
    twice = preload.environment("m", preload.environment("n", {"A": "1"}))
    assert twice == {"A": "1", "LD_PRELOAD": own, "SOFTNIC_NIC": "m"}


def test_programs_that_do_not_call_the_c_library_are_known(tmp_path: Path) -> None:
    program = bytearray(Path("/bin/sh").read_bytes())
    assert preload.obstacle("/bin/sh") == ""
    headers = struct.unpack_from("=Q", program, 32)[0]
    copy = tmp_path / "program"
    copy.write_bytes(program + b"\xff Go buildinf:")
    assert "Go" in preload.obstacle(copy)
    copy.write_bytes(program.replace(b"/ld-linux-", b"/ld-musl-x", 1))
    assert "musl" in preload.obstacle(copy)
    size, count = struct.unpack_from("=HH", program, 54)
    for at in range(headers, headers + size * count, size):
        if struct.unpack_from("=I", program, at)[0] == 3:
            struct.pack_into("=I", program, at, 0)
    copy.write_bytes(program)
    assert "statically" in preload.obstacle(copy)
    copy.write_bytes(program[:64])
    assert "statically" in preload.obstacle(copy)
    for content in (b"#!/bin/sh\n", bytes(program[:40]), b""):
        copy.write_bytes(content)
        assert preload.obstacle(copy) == ""


@needs.tools("curl")
def test_curl(nics: list[Nic], tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "file").write_bytes(content)
    with server(nics[1], 8000, sys.executable, "-m", "http.server", "8000", "--directory", str(tmp_path)):
        url = f"http://{nics[1].ip}:8000/file"
        done = run(nics[0], "curl", "-sS", "-o", str(tmp_path / "copy"), "-w", "%{remote_ip} %{local_ip}", url)
    assert done.stdout == f"{nics[1].ip} {nics[0].ip}", done.stderr
    assert hashlib.sha256((tmp_path / "copy").read_bytes()).digest() == hashlib.sha256(content).digest()
    assert run(nics[0], "curl", "-sS", f"http://{nics[1].ip}:9/").returncode == 7  # refused


@needs.tools("iperf3")
def test_iperf3(nics: list[Nic]) -> None:
    with server(nics[1], 5201, "iperf3", "-s", "-1") as process:
        done = run(nics[0], "iperf3", "-c", nics[1].ip, "-n", "20M", "-J")
        assert done.returncode == 0, done.stdout
        process.wait(WAIT_S)
    ended = json.loads(done.stdout)["end"]
    assert ended["sum_sent"]["bytes"] >= 20 << 20
    assert ended["sum_received"]["bytes"] > 1 << 20  # the server stops reading when the client has written all


@needs.tools("redis-cli", "redis-server")
def test_redis(nics: list[Nic], tmp_path: Path) -> None:
    flags = ("--port", "6379", "--save", "", "--protected-mode", "no", "--dir", str(tmp_path))
    with server(nics[1], 6379, "redis-server", *flags) as process:

        def ask(*command: str, host: str = nics[1].ip, nic: Nic = nics[0]) -> str:
            done = run(nic, "redis-cli", "-h", host, *command)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        assert ask("set", "key", "value" * 20_000) == "OK"
        assert ask("get", "key") == "value" * 20_000
        assert f"addr={nics[0].ip}:" in ask("client", "list")
        assert ask("get", "key", host="localhost", nic=nics[1]) == "value" * 20_000
        ask("shutdown", "nosave")
        assert process.wait(WAIT_S) == 0
