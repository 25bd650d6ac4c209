"""ProcessSupervisor: starts processes as requested, and none outlives the owner, however either of them ends."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.supervisor import ProcessSupervisor

LIMIT_S = 60.0

SLEEPER = "import os, signal; os.write(1, b'up'); signal.pause()"
STUBBORN = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(1, b'up'); signal.pause()"
DETACHED = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
"""Runs its argument like a daemon: orphaned, in a new session."""

OWNER = """
import os, signal, sys
from softnic.cluster.supervisor import ProcessSupervisor
out = int(sys.argv[1])
supervisor = ProcessSupervisor()
os.write(out, f"{{supervisor.pid}} {{supervisor.directory}}".encode())
process = supervisor.start([sys.executable, "-c", *sys.argv[2:]], [out, out, out])
{more}
process.wait()
"""


def is_readable(fd: int) -> bool:
    """Wait for it within the time limit; other tests of this process may have left many files open."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(1000 * LIMIT_S))


class Pipe:
    """A pipe that processes write to. It is at its end when the last of them has ended."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def __del__(self) -> None:
        os.close(self.read_end)

    def close_write_end(self) -> None:
        """Called when the processes have their copies."""
        os.close(self.write_end)

    def read(self) -> bytes:
        """Return available data; b"" at the end."""
        assert is_readable(self.read_end), "no data within the time limit"
        return os.read(self.read_end, 1000)

    def read_all(self) -> bytes:
        return b"".join(iter(self.read, b""))


@pytest.fixture
def supervisor() -> Iterator[ProcessSupervisor]:
    supervisor = ProcessSupervisor()
    yield supervisor
    supervisor.stop()


def python(supervisor: ProcessSupervisor, code: str, *arguments: str, env: dict[str, str] | None = None) -> Pipe:
    pipe = Pipe()
    supervisor.start([sys.executable, "-c", code, *arguments], [pipe.write_end] * 3, env)
    pipe.close_write_end()
    return pipe


def test_a_process_gets_its_arguments_environment_and_fds(
    supervisor: ProcessSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys; os.write(3, repr((sys.argv[1:], os.environ.get('NAME'), os.getcwd())).encode())"
    monkeypatch.chdir(tmp_path)
    pipe = Pipe()
    null = os.open(os.devnull, os.O_RDWR)
    process = supervisor.start(
        [sys.executable, "-c", code, "a b", "ä"], [null, null, null, pipe.write_end], {"NAME": "x"}
    )
    os.close(null)
    pipe.close_write_end()
    assert pipe.read_all().decode() == repr((["a b", "ä"], "x", str(tmp_path)))
    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("open_files", [0, 50])
def test_a_process_inherits_no_other_fd(open_files: int) -> None:
    """The more files the owner has open, the higher is the number of the supervisor's socket."""
    with contextlib.ExitStack() as stack:
        for _ in range(open_files):
            stack.enter_context(Path(os.devnull).open("rb"))
        supervisor = ProcessSupervisor()
        stack.callback(supervisor.stop)
        pipe = python(
            supervisor, "import os; os.write(1, repr(sorted(map(int, os.listdir('/proc/self/fd')))).encode())"
        )
        assert pipe.read_all() == b"[0, 1, 2, 3]"  # 3 is the directory that is listed


def test_a_large_environment_is_passed(supervisor: ProcessSupervisor) -> None:
    pipe = python(supervisor, "import os; os.write(1, b'%d' % len(os.environ['BIG']))", env={"BIG": "x" * 100_000})
    assert pipe.read_all() == b"100000"


def test_the_reply_is_awaited_whatever_the_default_timeout_of_sockets_is() -> None:
    socket.setdefaulttimeout(1e-6)
    try:
        supervisor = ProcessSupervisor()
    finally:
        socket.setdefaulttimeout(None)
    with contextlib.ExitStack() as stack:
        stack.callback(supervisor.stop)
        assert python(supervisor, "import os; os.write(1, b'up')").read_all() == b"up"


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_the_exit_code_is_reported(supervisor: ProcessSupervisor, code: str, expected: int) -> None:
    process = supervisor.start([sys.executable, "-c", code], [0, 1, 2])
    assert process.wait(LIMIT_S) == expected
    assert process.poll() == expected
    process.signal(signal.SIGTERM)  # has no effect


@pytest.mark.parametrize("name", ["/nowhere/command", "no-such-command"])
def test_a_missing_command_is_an_error(supervisor: ProcessSupervisor, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="command not found"):
        supervisor.start([name], [])


def test_a_malformed_executable_is_an_error(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    command = tmp_path / "command"
    command.write_bytes(b"\x7fELF and no more")
    command.chmod(0o755)
    with pytest.raises(OSError, match="Exec format error"):
        supervisor.start([str(command)], [0, 1, 2])
    assert supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S) == 0


def test_a_file_that_is_not_executable_is_an_error(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.touch(0o600)
    with pytest.raises(PermissionError, match="the file is not executable"):
        supervisor.start([str(script)], [])


def test_a_supervisor_out_of_fds_reports_it_and_continues(supervisor: ProcessSupervisor) -> None:
    assert supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S) == 0
    limits = resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE)
    used = {int(entry.name) for entry in Path(f"/proc/{supervisor.pid}/fd").iterdir()}
    free = [number for number in range(100) if number not in used]
    results: list[int | None] = []
    for limit in free[:12]:  # leaves 0, 1, 2, ... free ones
        resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
        try:
            results.append(supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S))
        except OSError as error:
            results.append(error.errno)
    assert results.count(errno.EMFILE) > 5
    assert set(results) <= {errno.EMFILE, 0}
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, limits)
    assert supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S) == 0


def test_a_signal_reaches_the_process(supervisor: ProcessSupervisor) -> None:
    pipe = Pipe()
    process = supervisor.start([sys.executable, "-c", SLEEPER], [pipe.write_end] * 3)
    pipe.close_write_end()
    assert pipe.read() == b"up"
    assert process.poll() is None
    process.signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == -signal.SIGINT


def test_stop_ends_processes_and_their_detached_children() -> None:
    supervisor = ProcessSupervisor()
    (supervisor.directory / "file").touch()
    assert supervisor.directory.stat().st_mode & 0o777 == 0o700
    pipes = [python(supervisor, SLEEPER), python(supervisor, DETACHED, SLEEPER)]
    assert [pipe.read() for pipe in pipes] == [b"up"] * 2
    supervisor.stop()
    assert [pipe.read() for pipe in pipes] == [b""] * 2
    assert not supervisor.directory.exists()
    supervisor.stop()
    with pytest.raises(ProcessLookupError):
        supervisor.start(["true"], [0, 1, 2])


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    supervisor = ProcessSupervisor(grace_s=0.2)
    pipe = python(supervisor, STUBBORN)
    assert pipe.read() == b"up"
    supervisor.stop()
    assert pipe.read() == b""


def test_each_supervisor_has_a_directory_of_its_own(supervisor: ProcessSupervisor) -> None:
    other = ProcessSupervisor()
    other.stop()
    assert other.directory != supervisor.directory
    assert supervisor.directory.is_dir()


def owner(
    pipe: Pipe, *keep: int, more: str = "", program: tuple[str, ...] = (SLEEPER,)
) -> tuple[subprocess.Popen[bytes], int, Path]:
    """Start a process whose supervisor runs a program. Returns it, the supervisor's pidfd and its directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(more=textwrap.dedent(more)), str(pipe.write_end), *program],
        pass_fds=[pipe.write_end, *keep],
        cwd=Path(__file__).resolve().parents[2],
    )
    pipe.close_write_end()
    output = b""
    while not output.endswith(b"up"):
        data = pipe.read()
        assert data
        output += data
    pid, directory = output.removesuffix(b"up").decode().split()
    return process, os.pidfd_open(int(pid)), Path(directory)


def wait_for(pidfd: int) -> None:
    assert is_readable(pidfd), "the process still runs"
    os.close(pidfd)


@pytest.mark.parametrize("program", [(SLEEPER,), (DETACHED, SLEEPER)], ids=["process", "detached-grandchild"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_an_owner_that_is_killed(number: signal.Signals, program: tuple[str, ...]) -> None:
    pipe = Pipe()
    process, supervisor, directory = owner(pipe, more="signal.pause()", program=program)
    assert directory.is_dir()
    process.send_signal(number)
    assert process.wait(LIMIT_S) == -number
    assert pipe.read_all() == b""
    wait_for(supervisor)
    assert not directory.exists()


def test_a_fork_of_the_owner_does_not_keep_processes_alive() -> None:
    """The fork has a copy of the supervisor's socket; only the pidfd reports the end of the owner."""
    pipe, kept = Pipe(), Pipe()
    fork = f"""
        if not os.fork():
            os.close(out)
            os.write({kept.write_end}, b"%d" % os.getpid())
            signal.pause()
    """
    process, supervisor, _ = owner(pipe, kept.write_end, more=fork)
    kept.close_write_end()
    survivor = int(kept.read())
    try:
        process.kill()
        process.wait(LIMIT_S)
        assert pipe.read_all() == b""
        wait_for(supervisor)
    finally:
        os.kill(survivor, signal.SIGKILL)


def test_nothing_outlives_a_supervisor_that_is_killed() -> None:
    supervisor = ProcessSupervisor()
    pipe = Pipe()
    process = supervisor.start([sys.executable, "-c", SLEEPER], [pipe.write_end] * 3)
    pipe.close_write_end()
    assert pipe.read() == b"up"
    os.kill(supervisor.pid, signal.SIGKILL)
    assert pipe.read() == b""
    assert process.wait(LIMIT_S) == -signal.SIGKILL
    process.signal(signal.SIGTERM)  # has no effect
    with pytest.raises(ProcessLookupError, match="gone"):
        supervisor.start(["true"], [0, 1, 2])
    (supervisor.directory / "node0.sock").touch()
    supervisor.stop()
    assert not supervisor.directory.exists()
