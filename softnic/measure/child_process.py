"""Child processes that measure and report what they found as lines of JSON on stdout.

Such a process runs a module by `python -m`. `report_json` is used by the module, `ChildProcess` by the process that
starts it. How it is started is an argument: on a node of a cluster (`Cluster.spawn`), or in a network namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol

from softnic.measure.report import MeasurementError

LIMIT_S = 600.0
"""Default limit of silence, long enough for a slow link and a busy machine. An ended process is noticed at once."""
_END_S = 60.0


class SilenceError(MeasurementError):
    """A process reported nothing within its limit."""


class ProcessHandle(Protocol):
    """A started process, such as `softnic.cluster.supervisor.SupervisedProcess`."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout_s: float | None = None) -> int | None: ...

    def signal(self, number: int) -> None: ...


Start = Callable[[int, Sequence[str], Sequence[int]], ProcessHandle]
"""Starts a command on a node with the given file descriptors as its 0, 1, 2, ..."""


def report_json(**values: Any) -> None:
    """Write one event for the process that started this one."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class ChildProcess:
    """`python -m module arguments` on a node, until `close`.

    `descriptors` become the process's file descriptors 3, 4, ...; errors call it `name`, or by its module and first
    argument.
    """

    def __init__(
        self,
        start: Start,
        node: int,
        module: str,
        *arguments: str,
        descriptors: Sequence[int] = (),
        python: str = sys.executable,
        name: str | None = None,
    ) -> None:
        self._name = name or f"{module} {arguments[0] if arguments else ''}".strip()
        self._received = b""
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        given, self._in = os.pipe()
        argv = [python, "-P", "-m", module, *arguments]
        try:
            self._process = start(node, argv, [given, out, err, *descriptors])
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for descriptor in (given, out, err):
                os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when `receive` has something to return or raise."""
        return self._out

    def send_line(self, line: str) -> None:
        """Write a line to the process's stdin. A process that has ended is noticed by `receive`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._in, line.encode() + b"\n")

    def receive(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Return the process's next event.

        Raises MeasurementError if the process ends instead, and SilenceError if it reports nothing for `limit_s`
        seconds.
        """
        deadline = time.monotonic() + limit_s
        while not self.has_event:
            left_s = deadline - time.monotonic()
            if not wait([self._out], max(0.0, left_s)):
                raise SilenceError(f"{self._name} reported nothing for {limit_s:.0f} s: measure less at a time")
            data = os.read(self._out, 1 << 16)
            if not data:
                raise MeasurementError(f"{self._name} ended early: {self._last_error_line()}")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    @property
    def has_event(self) -> bool:
        """Whether `receive` returns without waiting."""
        return b"\n" in self._received

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self._process.wait(0) is None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(_END_S)
        self._close_pipes()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _close_pipes(self) -> None:
        for descriptor in (self._in, self._out, self._err):
            os.close(descriptor)

    def _last_error_line(self) -> str:
        self._process.wait(_END_S)
        os.set_blocking(self._err, False)
        try:
            lines = os.read(self._err, 1 << 16).decode(errors="replace").split("\n")
        except BlockingIOError:
            lines = []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote no error message")


@dataclass(frozen=True)
class ChildProcesses:
    """Child processes that get the same orders, one for each rank."""

    processes: Sequence[ChildProcess]
    limit_s: float = LIMIT_S
    """Limit of silence of each."""

    def receive(self) -> list[dict[str, Any]]:
        """Return the next event of each."""
        return [process.receive(self.limit_s) for process in self.processes]

    def order(self, *words: str) -> list[dict[str, Any]]:
        """Send each a line, and return what they report."""
        for process in self.processes:
            process.send_line(" ".join(words))
        return self.receive()


@contextlib.contextmanager
def rank_processes(
    start: Start,
    ranks: int,
    module: str,
    *options: str,
    python: str = sys.executable,
    numbered: bool = False,
    limit_s: float = LIMIT_S,
) -> Iterator[ChildProcesses]:
    """Run a module on the node of each rank; all have reported that they are ready.

    With `numbered`, each gets the options --rank and --size.
    """
    with contextlib.ExitStack() as stack:
        processes = []
        for rank in range(ranks):
            number = ("--rank", str(rank), "--size", str(ranks)) if numbered else ()
            process = ChildProcess(start, rank, module, *options, *number, python=python)
            processes.append(stack.enter_context(process))
        group = ChildProcesses(processes, limit_s)
        group.receive()
        yield group
