"""Starts processes that do not outlive their owner, however it ends.

A supervisor process is the parent of all processes of an owner, and the subreaper (PR_SET_CHILD_SUBREAPER) of those
that detach themselves. When its owner ends, kill -9 included, or calls `stop`, it ends all its descendants, by SIGTERM
and after a grace period by SIGKILL, and removes the owner's directory. If the supervisor itself is killed, the kernel
kills its children (PR_SET_PDEATHSIG).

The supervisor runs this file, which imports the standard library only, to start quickly. The owner sends it what to
start: file descriptors of a file of JSON, of a pipe for the exit code, and those that become 0, 1, 2, ... of the
process. The reply is the process id, or the negative errno.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GRACE_S = 3.0
"""From SIGTERM to SIGKILL."""
UNKILLABLE_S = 10.0
"""From SIGKILL to giving up on a process that the kernel does not end."""
PREFIX = "softnic-"
"""Prefix of the names of directories."""
_MAX_BASE = 60
"""Bytes of the path that directories are made in: the path of a Unix socket has at most 107."""
_MAX_FDS = 64
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def base_directory() -> Path:
    """Return where directories of supervisors are made: the system's temporary directory, if its path is short."""
    base = Path(tempfile.gettempdir())
    return base if len(os.fsencode(base)) <= _MAX_BASE else Path("/tmp")


class SupervisedProcess:
    """A process that the supervisor started."""

    def __init__(self, pid: int, exit_pipe: int) -> None:
        self.pid = pid
        self._exit_pipe = exit_pipe
        self._lock = threading.Lock()
        self._code: int | None = None
        self._finalizer = weakref.finalize(self, os.close, exit_pipe)

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the process ends."""
        return self._exit_pipe

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit code, as in subprocess; None if the process still runs after `timeout_s`.

        The exit code is -SIGKILL if the supervisor was killed.
        """
        with self._lock:
            if self._code is None:
                poll = select.poll()
                poll.register(self._exit_pipe, select.POLLIN)
                if not poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000)):
                    return None
                self._code = int(os.read(self._exit_pipe, 16) or -signal.SIGKILL)
            return self._code

    def poll(self) -> int | None:
        return self.wait(0)

    def ending(self) -> str | None:
        """Return how the process ended, as a predicate for its name; None if it runs."""
        code = self.poll()
        if code is None or code >= 0:
            return None if code is None else f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def signal(self, number: int) -> None:
        """Send a signal to the process group. No effect if the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.killpg(self.pid, number)


class ProcessSupervisor:
    """Starts processes that end with this one, or at `stop`.

    Parameters
    ----------
    grace_s
        Time between SIGTERM and SIGKILL.
    at_exit
        Stop with the interpreter; otherwise when the process has ended.

    Attributes
    ----------
    directory : Path
        A directory for the processes, which exists until they have ended.

    Raises
    ------
    OSError
    """

    def __init__(self, grace_s: float = GRACE_S, *, at_exit: bool = True) -> None:
        self._lock = threading.Lock()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base_directory()))
        self._socket, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(True)  # whatever the program's default timeout is
        arguments = (peer.fileno(), os.getpid(), grace_s, self.directory)
        # Not `-m`: isolated from PYTHONPATH and site, the process starts within milliseconds.
        argv = [sys.executable, "-IS", __file__, *map(str, arguments)]
        try:
            with peer:
                self._process = subprocess.Popen(
                    argv, pass_fds=[peer.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
                )
        except OSError:
            self._socket.close()
            self.directory.rmdir()
            raise
        self._finalizer = weakref.finalize(self, _stop, self._socket, self._process, os.getpid(), self.directory)
        self._finalizer.atexit = at_exit

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        return self._process.pid

    def start(self, argv: Sequence[str], fds: Sequence[int], env: Mapping[str, str] | None = None) -> SupervisedProcess:
        """Start a process in the current directory.

        Parameters
        ----------
        argv
            Command and arguments. The command is looked up in the PATH of `env`.
        fds
            File descriptors, which become 0, 1, 2, ... of the process.
        env
            Environment. Default: that of this process.

        Raises
        ------
        OSError
            If the process cannot be started.
        """
        environment = dict(os.environ if env is None else env)
        path = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
        if path is None:
            if Path(argv[0]).is_file():
                raise PermissionError(errno.EACCES, f"{argv[0]}: the file is not executable")
            raise FileNotFoundError(errno.ENOENT, f"{argv[0]}: command not found")
        spec = {"executable": path, "args": list(argv), "env": environment, "cwd": str(Path.cwd())}
        exit_read, exit_write = os.pipe()
        try:
            with os.fdopen(os.memfd_create("softnic-start"), "w+b") as file:
                file.write(json.dumps(spec).encode())
                file.seek(0)
                pid = self._send(file.fileno(), exit_write, *fds)
        except BaseException:
            os.close(exit_read)
            raise
        finally:
            os.close(exit_write)
        return SupervisedProcess(pid, exit_read)

    def _send(self, *fds: int) -> int:
        """Return the process id that the supervisor replies. Raises OSError."""
        reply = b""
        with self._lock, suppress(OSError):
            socket.send_fds(self._socket, [b"start"], fds)
            reply = self._socket.recv(64)
        if not reply:
            raise ProcessLookupError(errno.ESRCH, "the process supervisor is gone")
        if (pid := int(reply)) < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def stop(self) -> None:
        """End all processes and wait for them. Idempotent."""
        self._finalizer()


def _stop(channel: socket.socket, process: subprocess.Popen[bytes], owner: int, directory: Path) -> None:
    if os.getpid() != owner:  # a forked process
        return
    with suppress(OSError):  # close alone has no effect while forked processes have a copy
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()
    if process.wait():  # the supervisor was killed and could not remove it
        shutil.rmtree(directory, ignore_errors=True)


class _SupervisorProcess:
    """The supervisor process."""

    def __init__(self, channel: socket.socket, owner: int, grace_s: float, directory: Path) -> None:
        self._channel = channel
        self._owner = owner
        self._grace_s = grace_s
        self._directory = directory
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._exit_pipes: dict[int, int] = {}
        """Pipes for exit codes by process id, of the running processes that were started here."""

    def run(self) -> None:
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wakeup, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        for handled in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(handled, lambda _number, _frame: None)
        try:
            # A process's descriptors become 0, 1, 2, ... after its fork: all others have higher numbers.
            while os.open(os.devnull, os.O_RDONLY) < _MAX_FDS:
                pass
            self._serve(wakeup)
        finally:
            self._end_all()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _serve(self, wakeup: int) -> None:
        """Serve requests until the owner ends or closes its socket, or until SIGTERM."""
        poll = select.poll()
        channel, owner = self._channel.fileno(), -1
        with suppress(OSError):  # a kernel before 5.3 reports the owner's end by its socket only
            owner = os.pidfd_open(self._owner)
            poll.register(owner, select.POLLIN)
        for fd in (channel, wakeup):
            poll.register(fd, select.POLLIN)
        while os.getppid() == self._owner:
            ready = {fd for fd, _ in poll.poll()}
            if owner in ready or (wakeup in ready and signal.SIGTERM in os.read(wakeup, 4096)):
                return
            self._reap()
            if channel in ready and not self._answer():
                return

    def _answer(self) -> bool:
        """Start one process. Returns False at the end of the connection."""
        try:
            data, fds, flags, _address = socket.recv_fds(self._channel, 64, _MAX_FDS)
        except OSError:
            return False
        try:
            reply = -errno.EMFILE if flags & socket.MSG_CTRUNC else self._start(*fds) if data else 0
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reply = -(getattr(error, "errno", None) or errno.EIO)
        finally:
            for fd in fds:
                os.close(fd)
        with suppress(OSError):
            self._channel.send(b"%d" % reply)
        return bool(data)

    def _start(self, spec_fd: int, exit_pipe: int, *fds: int) -> int:
        with open(spec_fd, "rb", closefd=False) as file:
            spec = json.loads(file.read())
        supervisor, report = os.getpid(), os.dup(exit_pipe)

        def prepare() -> None:  # in the forked child
            signal.set_wakeup_fd(-1)
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(127)
            for number, fd in enumerate(fds):
                os.dup2(fd, number)

        try:
            process = subprocess.Popen(**spec, pass_fds=range(len(fds)), start_new_session=True, preexec_fn=prepare)
        except BaseException:
            os.close(report)
            raise
        process.returncode = 0  # `_reap` waits for it
        self._exit_pipes[process.pid] = report
        return process.pid

    def _reap(self) -> None:
        """Reap ended children, and report the exit codes of those that were started here."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                exit_pipe = self._exit_pipes.pop(ended[0], None)
                if exit_pipe is not None:
                    with suppress(OSError):  # the owner may have closed its end
                        os.write(exit_pipe, str(os.waitstatus_to_exitcode(ended[1])).encode())
                    os.close(exit_pipe)

    def _end_all(self) -> None:
        """End all descendants by SIGTERM and, after the grace period, by SIGKILL."""
        started = time.monotonic()
        for pid in _descendants():
            _kill(pid, signal.SIGTERM)
            _kill(pid, signal.SIGCONT)
        while (left := list(_descendants())) or self._exit_pipes:
            waited_s = time.monotonic() - started
            if waited_s > self._grace_s + UNKILLABLE_S:
                return
            if waited_s > self._grace_s:
                for pid in left:
                    _kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)


def _descendants() -> Iterator[int]:
    """Yield all descendants of this process except zombies."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it may end meanwhile
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        yield from below
        waiting += below


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    _SupervisorProcess(
        socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    ).run()
