"""Programs of any language use a NIC unchanged, through the preloaded library."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from softnic import preload
from softnic.cluster.nic_process import read_stats
from softnicd.process_monitor import state_of
from tests import needs
from tests.daemon.nics import WAIT_S, Nic, free_port, paused, until

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    *("names", "loopback", "ignored", "tags", "transfers", "nonblocking", "options"),
    *("shared_ports", "processes", "threads", "both_families", "others"),
)
RARE = ("lingering", "rare_transfers", "copies", "queued_output", "no_descriptors", "resolving", "six_options")
LIKE_LINUX = (
    *("kept_options", "options_of_linux", "accepted_options", "no_family"),
    *("states", "empty_parts", "interfaces", "reconnected", "send_buffers"),
)
USERS = ("other_user", "other_root", "other_nic", "not_inherited", "lingering")
_changes_its_user = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user")


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


@pytest.mark.parametrize("name", LIKE_LINUX)
def test_options_and_rare_states(nics: list[Nic], name: str) -> None:
    done = run(nics[0], sys.executable, "-S", "-m", "tests.daemon.preloaded_options", name, nics[0].ip, nics[1].ip)
    assert done.stdout == "done\n", done.stderr


@_changes_its_user
@pytest.mark.parametrize("name", USERS)
def test_servers_that_change_their_user(nics: list[Nic], name: str) -> None:
    done = run(nics[0], sys.executable, "-S", "-m", "tests.daemon.preloaded_users", name, nics[0].ip, nics[1].ip)
    assert done.stdout == "done\n", done.stderr


@contextmanager
def waiting(nic: Nic, module: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that waits for a line. It has to end well."""
    with subprocess.Popen(
        [sys.executable, "-S", "-m", f"tests.daemon.{module}", name, nic.ip, nic.ip],
        env=preload.environment(nic.path),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            yield program
            assert program.communicate(timeout=WAIT_S)[0] == b"done\n"
        finally:
            program.kill()


def answer(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.write(b"\n")
    program.stdin.flush()


@pytest.fixture
def own_nic(tmp_path: Path) -> Iterator[Nic]:
    """A NIC that a test stops."""
    nic = Nic(tmp_path, 0, [free_port()])
    nic.start()
    yield nic
    nic.stop()


@pytest.mark.parametrize("module", ["preloaded_options", pytest.param("preloaded_users", marks=_changes_its_user)])
def test_a_nic_that_was_started_again(own_nic: Nic, module: str) -> None:
    with waiting(own_nic, module, "restarted") as program:
        assert own_nic.stop() == 0
        own_nic.start()
        answer(program)


def test_a_process_that_is_stopped_while_it_asks_the_nic(own_nic: Nic) -> None:
    with waiting(own_nic, "preloaded_calls", "continued") as program:
        process = Path(f"/proc/{program.pid}")

        def asks() -> bool:
            call = (process / "syscall").read_text().split()
            return call[0].isdigit() and int(call[1], 16) >= 500  # on its control connection

        with paused(own_nic):
            answer(program)
            until(asks)
            program.send_signal(signal.SIGSTOP)
            until(lambda: state_of(program.pid) == "T")
            program.send_signal(signal.SIGCONT)
            until(lambda: program.poll() is not None or asks())


def compiled(name: str, directory: Path) -> Path:
    """Compile a program in C, and return its path."""
    compiler = shutil.which("cc") or needs.skip("not installed: cc (apt-get install gcc)")
    program = directory / name
    subprocess.run([compiler, "-o", program, ROOT / "tests" / "daemon" / "programs" / f"{name}.c"], check=True)
    return program


@_changes_its_user
def test_a_process_that_changes_its_user_and_starts_another_program(nics: list[Nic], tmp_path: Path) -> None:
    if private := [each for each in preload.library().parents if not each.stat().st_mode & stat.S_IXOTH]:
        needs.skip(f"the other user cannot open the preloaded library: chmod o+x {private[0]}")
    program = str(compiled("inherited", tmp_path))
    done = run(nics[0], sys.executable, "-S", "-m", "tests.daemon.preloaded_users", "same_process", nics[0].ip, program)
    assert done.stdout == "done\n", done.stderr


def test_the_end_of_a_stream_is_read_without_asking_the_nic(nics: list[Nic]) -> None:
    code = """if True:
        import socket, sys
        with socket.create_server((sys.argv[1], 0)) as listening:
            client = socket.create_connection(listening.getsockname())
            accepted, _ = listening.accept()
            client.shutdown(socket.SHUT_WR)
            print([accepted.recv(1) for _ in range(int(sys.argv[2]))][-1])
    """
    requests = []
    for reads in (1, 20):
        before = nics[0].counters()["control_requests"]
        assert run(nics[0], sys.executable, "-S", "-c", code, nics[0].ip, str(reads)).stdout == "b''\n"
        requests.append(nics[0].counters()["control_requests"] - before)
    assert requests[0] == requests[1]


def test_a_child_of_vfork_leaves_its_parent_s_connection_alone(nics: list[Nic], tmp_path: Path) -> None:
    done = run(nics[0], str(compiled("vfork", tmp_path)))
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


@pytest.mark.parametrize("path", ["/opt/my apps/s.so", "/opt/a:b/s.so", "/opt/$LIB/s.so"])
def test_a_path_that_the_loader_would_split_is_refused(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The loader would ignore the library, and the program use the kernel's sockets."""
    monkeypatch.setattr(preload, "library", lambda: Path(path))
    with pytest.raises(OSError, match=r"cannot be preloaded: LD_PRELOAD takes no path with a space"):
        preload.environment("nic.sock", {})


def test_a_control_socket_whose_path_is_too_long_is_refused() -> None:
    assert preload.environment("n" * 107, {})["SOFTNIC_NIC"] == "n" * 107
    with pytest.raises(OSError, match="107 bytes at most"):
        preload.environment("n" * 108, {})


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
