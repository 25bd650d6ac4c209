"""A process that starts others for its owner and lets none of them outlive it, however it ends.

`ProcessSupervisor` is the owner's side. The other side is this file run as a program: one small single-threaded
process in a session of its own, which

- makes a directory for what the others need (sockets, logs);
- starts what it is told to, each in a session of its own, and reports how it ended;
- is the reaper of everything below it (PR_SET_CHILD_SUBREAPER), so a process that detaches itself stays in sight;
- learns of its owner's end, kill -9 included, by a pidfd, and of being told to stop by the end of its socket;
- then ends all that is left below it, first with SIGTERM, then with SIGKILL, and removes the directory it made.

Were it killed itself, its children get SIGKILL from the kernel (PR_SET_PDEATHSIG).

Between the two runs a SOCK_SEQPACKET pair; one request is one packet of JSON, and so is its reply:

- `{"make": base}`: make the directory below `base`. Reply `{"directory": path}`.
- `{"start": n}` with descriptors: a file of JSON (`program`, `argv`, `env`, `cwd`), a pipe to write the exit code to,
  and the new process's descriptors 0, 1, ... n-1. Reply `{"pid": ...}`.
- `{"signal": number, "pid": ...}`: for the process's group; one that has ended is left alone. Reply `{}`.

A reply to what failed is `{"errno": ...}`. Only the standard library is imported here, and little of it, so that
the program starts at once.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path
from typing import Any

GRACE_S = 3.0
"""From SIGTERM to SIGKILL."""
HOPELESS_S = 10.0
"""From SIGKILL to giving up on a process that the kernel does not let go."""
PREFIX = "softnic-"
"""What the names of directories begin with."""
_LONGEST_BASE = 60
"""Bytes; what is left of a Unix socket's 107 must do for the names below."""
_MAX_MESSAGE = 4096
_MAX_DESCRIPTORS = 64
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def base_directory() -> Path:
    """Where supervisors make their directories: the system's for temporary files, if sockets can be named there."""
    base = Path(tempfile.gettempdir())
    return base if len(os.fsencode(base)) <= _LONGEST_BASE else Path("/tmp")


class Process:
    """A process that the supervisor started."""

    def __init__(self, supervisor: ProcessSupervisor, pid: int, exit_pipe: int) -> None:
        self._supervisor = supervisor
        self.pid = pid
        self._exit_pipe = exit_pipe
        self._lock = threading.Lock()
        self._code: int | None = None
        self._finalizer = weakref.finalize(self, os.close, exit_pipe)

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        return self._exit_pipe

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code, negative for a signal, as subprocess has it; None if it runs on after `timeout_s`.

        A process whose supervisor was killed is gone too: -SIGKILL.
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
        """How it ended, in words that follow its name; None: it runs."""
        code = self.poll()
        if code is None or code >= 0:
            return None if code is None else f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its group; nothing if it has ended."""
        self._supervisor.call({"signal": number, "pid": self.pid})


class ProcessSupervisor:
    """Starts the supervisor process and has it make `directory`. Raises OSError.

    It is stopped with the interpreter; without `at_exit`, only when the process has really ended.
    """

    def __init__(self, grace_s: float = GRACE_S, *, at_exit: bool = True) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Not `-m`: isolated from PYTHONPATH and site, it starts in a few milliseconds.
            self._process = subprocess.Popen(
                [sys.executable, "-IS", __file__, str(theirs.fileno()), str(os.getpid()), str(grace_s)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        made: list[Path] = []
        self._finalizer = weakref.finalize(self, _stop, self._socket, self._process, os.getpid(), made)
        self._finalizer.atexit = at_exit
        self.directory = Path(self.call({"make": str(base_directory())})["directory"])
        made.append(self.directory)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, argv: Sequence[str], descriptors: Sequence[int], env: Mapping[str, str] | None = None) -> Process:
        """Runs a program here; `descriptors` become its 0, 1, 2, ... Raises OSError as exec does."""
        environment = dict(os.environ if env is None else env)
        program = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
        if program is None:
            if Path(argv[0]).is_file():
                raise PermissionError(errno.EACCES, f"{argv[0]}: it is no program: it may not be executed")
            raise FileNotFoundError(errno.ENOENT, f"{argv[0]}: there is no such program")
        what = {"program": program, "argv": list(argv), "env": environment, "cwd": str(Path.cwd())}
        exit_read, exit_write = os.pipe()
        try:
            with os.fdopen(os.memfd_create("softnic-start"), "w+b") as file:
                file.write(json.dumps(what).encode())
                file.seek(0)
                reply = self.call({"start": len(descriptors)}, file.fileno(), exit_write, *descriptors)
        except BaseException:
            os.close(exit_read)
            raise
        finally:
            os.close(exit_write)
        return Process(self, reply["pid"], exit_read)

    def call(self, request: Mapping[str, Any], *descriptors: int) -> dict[str, Any]:
        """One request and its reply. Raises OSError: what the reply says, or that the supervisor is gone."""
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                answer = self._socket.recv(_MAX_MESSAGE)
            except OSError as error:
                raise ProcessLookupError(3, "the process that starts others is gone") from error
        if not answer:
            raise ProcessLookupError(3, "the process that starts others is gone")
        reply: dict[str, Any] = json.loads(answer)
        if "errno" in reply:
            raise OSError(reply["errno"], os.strerror(reply["errno"]))
        return reply

    def stop(self) -> None:
        """Ends all that still runs, and waits for it. May be called twice."""
        self._finalizer()


def _stop(channel: socket.socket, process: subprocess.Popen[bytes], owner: int, made: Sequence[Path]) -> None:
    if os.getpid() != owner:  # a fork of the owner owns nothing
        return
    with contextlib.suppress(OSError):  # close alone would not end it while forks hold a copy
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()
    if process.wait():  # it was killed, and has removed nothing
        for directory in made:
            shutil.rmtree(directory, ignore_errors=True)


class _Program:
    """The supervisor process."""

    def __init__(self, channel: socket.socket, owner: int, grace_s: float) -> None:
        self._channel = channel
        self._owner = owner
        self._grace_s = grace_s
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._exit_pipes: dict[int, int] = {}
        self._made: Path | None = None
        """The directory; only what was made here is ever removed here."""

    def run(self) -> None:
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for heard in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(heard, lambda _number, _frame: None)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        try:
            self._serve(awake)
        finally:
            self._end_all()
            if self._made is not None:
                shutil.rmtree(self._made, ignore_errors=True)

    def _serve(self, awake: int) -> None:
        """Until the owner ends or closes its side, or SIGTERM."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(awake, selectors.EVENT_READ)
            gone = self._watch_owner()
            if gone is not None:
                selector.register(gone, selectors.EVENT_READ)
            while os.getppid() == self._owner:
                ready = {key.fd for key, _ in selector.select()}
                if gone in ready:
                    return
                if awake in ready:
                    if signal.SIGTERM in os.read(awake, 4096):
                        return
                    self._reap()
                if self._channel.fileno() in ready and not self._answer():
                    return

    def _watch_owner(self) -> int | None:
        """A pidfd of the owner; None on a kernel before 5.3, where only its socket tells of its end."""
        try:
            return os.pidfd_open(self._owner)
        except OSError:
            return None

    def _answer(self) -> bool:
        """One request. False where there will be none any more."""
        try:
            data, descriptors, flags, _address = socket.recv_fds(self._channel, _MAX_MESSAGE, _MAX_DESCRIPTORS)
        except OSError:
            return False
        if not data:
            return False
        request = json.loads(data)
        reply: dict[str, Any]
        try:
            if flags & socket.MSG_CTRUNC:
                reply = {"errno": errno.EMFILE}
            elif "start" in request:
                reply = {"pid": self._start(descriptors)}
            elif "make" in request:
                reply = {"directory": str(self._make(Path(request["make"])))}
            else:
                self._signal(request["pid"], request["signal"])
                reply = {}
        except OSError as error:
            reply = {"errno": error.errno or 5}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps(reply).encode())
        return True

    def _make(self, base: Path) -> Path:
        made = base / f"{PREFIX}{os.urandom(5).hex()}"
        made.mkdir(mode=0o700)
        self._made = made
        return made

    def _signal(self, pid: int, number: int) -> None:
        if pid in self._exit_pipes:  # not reaped: the number is still its own
            os.killpg(pid, number)

    def _start(self, descriptors: list[int]) -> int:
        spec, exit_pipe, *standard = descriptors
        with open(spec, "rb", closefd=False) as file:
            what = json.loads(file.read())
        failed_read, failed_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            self._become(what, standard, failed_write)
        os.close(failed_write)
        with os.fdopen(failed_read, "rb") as failed:
            reason = failed.read()
        if reason:
            os.waitpid(pid, 0)
            raise OSError(int(reason), "exec")
        self._exit_pipes[pid] = os.dup(exit_pipe)
        return pid

    def _become(self, what: dict[str, Any], standard: list[int], failed: int) -> None:
        """The forked child: turns into the program, or says why not."""
        try:
            supervisor = os.getppid()
            os.setsid()
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for number in (
                signal.SIGCHLD,
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGHUP,
                signal.SIGPIPE,
                signal.SIGXFSZ,
            ):
                signal.signal(number, signal.SIG_DFL)
            # Out of the way first, so that no dup2 overwrites what a later one needs.
            high = max([*standard, failed]) + len(standard) + 1
            moved = [os.dup2(descriptor, high + index, False) for index, descriptor in enumerate([*standard, failed])]
            failed = moved.pop()
            for target, descriptor in enumerate(moved):
                os.dup2(descriptor, target)
            os.closerange(len(moved), failed)
            os.chdir(what["cwd"])
            os.execve(what["program"], what["argv"], what["env"])
        except OSError as error:
            # What dup2 says of a number beyond the limit is EBADF.
            os.write(failed, str(errno.EMFILE if error.errno == errno.EBADF else error.errno).encode())
        finally:
            os._exit(127)

    def _reap(self) -> None:
        """Takes in what has ended; tells of what was started here."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                exit_pipe = self._exit_pipes.pop(ended[0], None)
                if exit_pipe is not None:
                    with contextlib.suppress(OSError):  # the owner may not want to know
                        os.write(exit_pipe, str(os.waitstatus_to_exitcode(ended[1])).encode())
                    os.close(exit_pipe)

    def _end_all(self) -> None:
        """SIGTERM to everything below, then SIGKILL to what stays, until nothing does."""
        started = time.monotonic()
        for pid in _descendants():
            _kill(pid, signal.SIGTERM)
            _kill(pid, signal.SIGCONT)
        while (left := list(_descendants())) or self._exit_pipes:
            waited_s = time.monotonic() - started
            if waited_s > self._grace_s + HOPELESS_S:
                return
            if waited_s > self._grace_s:
                for pid in left:
                    _kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)


def _descendants() -> Iterator[int]:
    """All processes below this one, zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it may end meanwhile
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        yield from below
        waiting += below


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)  # which it had to be to come here
    _Program(channel, int(sys.argv[2]), float(sys.argv[3])).run()
