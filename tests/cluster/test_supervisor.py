"""The supervisor: what it starts runs as asked, and nothing outlives the owner, however either of them ends."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.facades.cluster import ProcessSupervisor

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
"""Runs its argument as a daemon does: orphaned, in a session of its own."""

OWNER = """
import os, signal, sys
from tests.facades.cluster import ProcessSupervisor
out = int(sys.argv[1])
supervisor = ProcessSupervisor()
os.write(out, f"{{supervisor.pid}} {{supervisor.directory}}".encode())
process = supervisor.start([sys.executable, "-c", sys.argv[2]], [out, out, out])
{more}
process.wait()
"""


class Pipe:
    """A pipe for processes to write to. As long as any of them holds its other end, its end does not come."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def __del__(self) -> None:
        os.close(self.read_end)

    def given(self) -> None:
        """The processes have their copies."""
        os.close(self.write_end)

    def next(self) -> bytes:
        """What comes next; b"" once no process holds the other end."""
        ready, _, _ = select.select([self.read_end], [], [], LIMIT_S)
        assert ready, "nothing came"
        return os.read(self.read_end, 1000)

    def all(self) -> bytes:
        return b"".join(iter(self.next, b""))


@pytest.fixture
def supervisor() -> Iterator[ProcessSupervisor]:
    supervisor = ProcessSupervisor()
    yield supervisor
    supervisor.stop()


def python(supervisor: ProcessSupervisor, code: str, *arguments: str, env: dict[str, str] | None = None) -> Pipe:
    pipe = Pipe()
    supervisor.start([sys.executable, "-c", code, *arguments], [pipe.write_end] * 3, env)
    pipe.given()
    return pipe


def test_a_program_gets_its_arguments_environment_and_descriptors(
    supervisor: ProcessSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys; os.write(3, repr((sys.argv[1:], os.environ.get('WHAT'), os.getcwd())).encode())"
    monkeypatch.chdir(tmp_path)
    pipe = Pipe()
    null = os.open(os.devnull, os.O_RDWR)
    process = supervisor.start(
        [sys.executable, "-c", code, "a b", "ä"], [null, null, null, pipe.write_end], {"WHAT": "x"}
    )
    os.close(null)
    pipe.given()
    assert pipe.all().decode() == repr((["a b", "ä"], "x", str(tmp_path)))
    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("held", [0, 50])
def test_a_program_inherits_no_other_descriptor(held: int) -> None:
    """The more its owner holds, the higher is the number of the supervisor's own channel."""
    with contextlib.ExitStack() as stack:
        for _ in range(held):
            stack.enter_context(Path(os.devnull).open("rb"))
        supervisor = ProcessSupervisor()
        stack.callback(supervisor.stop)
        pipe = python(
            supervisor, "import os; os.write(1, repr(sorted(map(int, os.listdir('/proc/self/fd')))).encode())"
        )
        assert pipe.all() == b"[0, 1, 2, 3]"  # 3 is the listing's own


def test_a_large_environment_is_handed_over(supervisor: ProcessSupervisor) -> None:
    pipe = python(supervisor, "import os; os.write(1, b'%d' % len(os.environ['BIG']))", env={"BIG": "x" * 100_000})
    assert pipe.all() == b"100000"


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_the_exit_code_is_told(supervisor: ProcessSupervisor, code: str, expected: int) -> None:
    process = supervisor.start([sys.executable, "-c", code], [0, 1, 2])
    assert process.wait(LIMIT_S) == expected
    assert process.poll() == expected
    process.signal(signal.SIGTERM)  # comes too late and harms nobody


@pytest.mark.parametrize("name", ["/nowhere/program", "no-such-program"])
def test_a_program_that_does_not_exist_is_an_error(supervisor: ProcessSupervisor, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="command not found"):
        supervisor.start([name], [])


def test_a_program_that_cannot_be_executed_is_an_error(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF and no more")
    program.chmod(0o755)
    with pytest.raises(OSError, match="Exec format error"):
        supervisor.start([str(program)], [0, 1, 2])
    assert supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S) == 0


def test_a_file_that_may_not_be_executed_is_told_from_one_that_is_not_there(
    supervisor: ProcessSupervisor, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.touch(0o600)
    with pytest.raises(PermissionError, match="the file is not executable"):
        supervisor.start([str(script)], [])


def test_a_supervisor_out_of_descriptors_reports_it_and_goes_on(supervisor: ProcessSupervisor) -> None:
    limits = resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE)
    used = {int(entry.name) for entry in Path(f"/proc/{supervisor.pid}/fd").iterdir()}
    free = [number for number in range(100) if number not in used]
    came: list[int | None] = []
    for limit in free[:12]:  # below it are 0, 1, 2, ... free ones
        resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
        try:
            came.append(supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S))
        except OSError as error:
            came.append(error.errno)
    assert came.count(errno.EMFILE) > 5
    assert set(came) <= {errno.EMFILE, 0}
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, limits)
    assert supervisor.start(["true"], [0, 1, 2]).wait(LIMIT_S) == 0


def test_a_signal_reaches_the_process(supervisor: ProcessSupervisor) -> None:
    pipe = Pipe()
    process = supervisor.start([sys.executable, "-c", SLEEPER], [pipe.write_end] * 3)
    pipe.given()
    assert pipe.next() == b"up"
    assert process.poll() is None
    process.signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == -signal.SIGINT


def test_stop_ends_processes_and_their_detached_children() -> None:
    supervisor = ProcessSupervisor()
    (supervisor.directory / "file").touch()
    assert supervisor.directory.stat().st_mode & 0o777 == 0o700
    pipes = [python(supervisor, SLEEPER), python(supervisor, DETACHED, SLEEPER)]
    assert [pipe.next() for pipe in pipes] == [b"up"] * 2
    supervisor.stop()
    assert [pipe.next() for pipe in pipes] == [b""] * 2
    assert not supervisor.directory.exists()
    supervisor.stop()
    with pytest.raises(ProcessLookupError):
        supervisor.start(["true"], [0, 1, 2])


def test_what_ignores_sigterm_is_killed() -> None:
    supervisor = ProcessSupervisor(grace_s=0.2)
    pipe = python(supervisor, STUBBORN)
    assert pipe.next() == b"up"
    supervisor.stop()
    assert pipe.next() == b""


def test_two_supervisors_have_a_directory_each(supervisor: ProcessSupervisor) -> None:
    other = ProcessSupervisor()
    other.stop()
    assert other.directory != supervisor.directory
    assert supervisor.directory.is_dir()


def owner(pipe: Pipe, *keep: int, more: str = "") -> tuple[subprocess.Popen[bytes], int, Path]:
    """A process with a supervisor that runs SLEEPER: it, the supervisor's pidfd, the supervisor's directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(more=textwrap.dedent(more)), str(pipe.write_end), SLEEPER],
        pass_fds=[pipe.write_end, *keep],
        cwd=Path(__file__).resolve().parents[2],
    )
    pipe.given()
    told = b""
    while not told.endswith(b"up"):
        came = pipe.next()
        assert came
        told += came
    pid, directory = told.removesuffix(b"up").decode().split()
    return process, os.pidfd_open(int(pid)), Path(directory)


def wait_for(pidfd: int) -> None:
    assert select.select([pidfd], [], [], LIMIT_S)[0], "it runs on"
    os.close(pidfd)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_an_owner_that_is_killed(number: signal.Signals) -> None:
    pipe = Pipe()
    process, supervisor, directory = owner(pipe)
    assert directory.is_dir()
    process.send_signal(number)
    assert process.wait(LIMIT_S) == -number
    assert pipe.all() == b""
    wait_for(supervisor)
    assert not directory.exists()


def test_a_fork_that_survives_the_owner_does_not_keep_its_processes() -> None:
    """The fork holds a copy of the supervisor's socket; only the pidfd tells that the owner itself has ended."""
    pipe, kept = Pipe(), Pipe()
    fork = f"""
        if not os.fork():
            os.close(out)
            os.write({kept.write_end}, b"%d" % os.getpid())
            signal.pause()
    """
    process, supervisor, _ = owner(pipe, kept.write_end, more=fork)
    kept.given()
    survivor = int(kept.next())
    try:
        process.kill()
        process.wait(LIMIT_S)
        assert pipe.all() == b""
        wait_for(supervisor)
    finally:
        os.kill(survivor, signal.SIGKILL)


def test_nothing_outlives_a_supervisor_that_is_killed() -> None:
    supervisor = ProcessSupervisor()
    pipe = Pipe()
    process = supervisor.start([sys.executable, "-c", SLEEPER], [pipe.write_end] * 3)
    pipe.given()
    assert pipe.next() == b"up"
    os.kill(supervisor.pid, signal.SIGKILL)
    assert pipe.next() == b""
    assert process.wait(LIMIT_S) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError, match="gone"):
        process.signal(signal.SIGTERM)
    (supervisor.directory / "node0.sock").touch()
    supervisor.stop()
    assert not supervisor.directory.exists()
