"""Starts processes that do not outlive their owner, however it ends.

`ProcessSupervisor` is the owner's side. It runs this file as the supervisor process, which starts the others and

- is notified of its owner's end, kill -9 included, by a pidfd, and of `stop` by the end of its socket;
- then ends all its descendants, by SIGTERM and after a grace period by SIGKILL, and removes the owner's directory;
- is their subreaper (PR_SET_CHILD_SUBREAPER), so that processes that detach themselves remain its descendants.

If the supervisor itself is killed, the kernel kills its children (PR_SET_PDEATHSIG).

The two sides are joined by a SOCK_SEQPACKET pair. A request and its reply are one packet of JSON each:

- `{"start": n}` with file descriptors: a file of JSON (`path`, `argv`, `env`, `cwd`), a pipe for the exit code, and the
  descriptors 0 to n-1 of the new process, which gets a session of its own. Reply: `{"pid": ...}`.
- `{"signal": number, "pid": ...}`: signals the process group of a process unless it has ended. Reply: `{}`.
- `{}`: does nothing. Reply: `{}`.

The reply to a request that failed is `{"errno": ...}`. This file imports the standard library only, to start quickly.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import selectors
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
from typing import Any

GRACE_S = 3.0
"""From SIGTERM to SIGKILL."""
UNKILLABLE_S = 10.0
"""From SIGKILL to giving up on a process that the kernel does not end."""
PREFIX = "softnic-"
"""Prefix of the names of directories."""
_MAX_BASE = 60
"""Bytes of the path that directories are made in: the path of a Unix socket has at most 107."""
_MAX_MESSAGE = 4096
_MAX_FDS = 64
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def base_directory() -> Path:
    """Return where directories of supervisors are made: the system's temporary directory, if its path is short."""
    base = Path(tempfile.gettempdir())
    return base if len(os.fsencode(base)) <= _MAX_BASE else Path("/tmp")


class SupervisedProcess:
    """A process that the supervisor started."""

    def __init__(self, supervisor: ProcessSupervisor, pid: int, exit_pipe: int) -> None:
        self._supervisor = supervisor
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
                with selectors.DefaultSelector() as selector:
                    selector.register(self._exit_pipe, selectors.EVENT_READ)
                    if not selector.select(timeout_s):
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
        self._supervisor.request({"signal": number, "pid": self.pid})


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
        self.request({})  # returns when the supervisor serves

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
        spec = {"path": path, "argv": list(argv), "env": environment, "cwd": str(Path.cwd())}
        exit_read, exit_write = os.pipe()
        try:
            with os.fdopen(os.memfd_create("softnic-start"), "w+b") as file:
                file.write(json.dumps(spec).encode())
                file.seek(0)
                reply = self.request({"start": len(fds)}, file.fileno(), exit_write, *fds)
        except BaseException:
            os.close(exit_read)
            raise
        finally:
            os.close(exit_write)
        return SupervisedProcess(self, reply["pid"], exit_read)

    def request(self, request: Mapping[str, Any], *fds: int) -> dict[str, Any]:
        """Send a request and return the reply. Raises OSError for an error reply or if the supervisor has ended."""
        answer = b""
        with self._lock, suppress(OSError):
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            answer = self._socket.recv(_MAX_MESSAGE)
        if not answer:
            raise ProcessLookupError(errno.ESRCH, "the process supervisor is gone")
        reply: dict[str, Any] = json.loads(answer)
        if "errno" in reply:
            raise OSError(reply["errno"], os.strerror(reply["errno"]))
        return reply

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
            self._serve(wakeup)
        finally:
            self._end_all()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _serve(self, wakeup: int) -> None:
        """Serve requests until the owner ends or closes its socket, or until SIGTERM."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(wakeup, selectors.EVENT_READ)
            owner: int | None = None
            with suppress(OSError):  # a kernel before 5.3 reports the owner's end by its socket only
                owner = os.pidfd_open(self._owner)
                selector.register(owner, selectors.EVENT_READ)
            while os.getppid() == self._owner:
                ready = {key.fd for key, _ in selector.select()}
                if owner in ready:
                    return
                if wakeup in ready:
                    if signal.SIGTERM in os.read(wakeup, 4096):
                        return
                    self._reap()
                if self._channel.fileno() in ready and not self._answer():
                    return

    def _answer(self) -> bool:
        """Serve one request. Returns False at the end of the connection."""
        try:
            data, fds, flags, _address = socket.recv_fds(self._channel, _MAX_MESSAGE, _MAX_FDS)
        except OSError:
            return False
        if not data:
            return False
        request = json.loads(data)
        reply = {}
        try:
            if flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, "file descriptors were lost")
            if "start" in request:
                reply["pid"] = self._start(fds)
            elif request.get("pid") in self._exit_pipes:  # not reaped, so the id is still its own
                os.killpg(request["pid"], request["signal"])
        except OSError as error:
            reply["errno"] = error.errno or errno.EIO
        finally:
            for fd in fds:
                os.close(fd)
        with suppress(OSError):
            self._channel.send(json.dumps(reply).encode())
        return True

    def _start(self, fds: list[int]) -> int:
        spec_fd, exit_pipe, *standard = fds
        with open(spec_fd, "rb", closefd=False) as file:
            spec = json.loads(file.read())
        error_read, error_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            self._exec(spec, standard, error_write)
        os.close(error_write)
        with os.fdopen(error_read, "rb") as file:
            error = file.read()
        if error:
            os.waitpid(pid, 0)
            raise OSError(int(error), "exec")
        self._exit_pipes[pid] = os.dup(exit_pipe)
        return pid

    def _exec(self, spec: dict[str, Any], standard: list[int], error_pipe: int) -> None:
        """Run the command in the forked child, or write the errno to the pipe."""
        try:
            supervisor = os.getppid()
            os.setsid()
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; execve resets signals that are handled
                signal.signal(ignored, signal.SIG_DFL)
            # To high numbers first, so that no dup2 overwrites one that is still needed.
            high = max([*standard, error_pipe]) + len(standard) + 1
            moved = [os.dup2(fd, high + index, False) for index, fd in enumerate([*standard, error_pipe])]
            error_pipe = moved.pop()
            for target, fd in enumerate(moved):
                os.dup2(fd, target)
            os.closerange(len(moved), error_pipe)
            os.chdir(spec["cwd"])
            os.execve(spec["path"], spec["argv"], spec["env"])
        except OSError as error:
            # dup2 to a number beyond the limit fails with EBADF.
            os.write(error_pipe, str(errno.EMFILE if error.errno == errno.EBADF else error.errno).encode())
        finally:
            os._exit(127)

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
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)  # it was inherited
    _SupervisorProcess(channel, int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])).run()
