"""Child processes that measure, and tell in lines of JSON on their stdout what they found.

Such a program is a module that is run by `python -m`; `tell` is its side of it, `Program` the side of who started it.
How it is started is an argument: on a node of a cluster (`Cluster.spawn`), or in a network namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

from softnic.bench.report import BenchError

LIMIT_S = 600.0
"""Of silence, which a slow link or a busy machine makes long. What has ended is noticed at once."""
_END_S = 60.0


class Running(Protocol):
    """A process: what `softnic.cluster.supervisor.Process` is, among others."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout_s: float | None = None) -> int | None: ...

    def signal(self, number: int) -> None: ...


Start = Callable[[int, Sequence[str], Sequence[int]], Running]
"""Starts a command on a node; the descriptors become its 0, 1, 2, ..."""


def tell(**values: Any) -> None:
    """One line for who started this program."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Program:
    """`python -m module arguments` on a node, until `close`. `descriptors` are its 3, 4, ...; `python` may be another
    interpreter than this one."""

    def __init__(
        self,
        start: Start,
        node: int,
        module: str,
        *arguments: str,
        descriptors: Sequence[int] = (),
        python: str = sys.executable,
    ) -> None:
        self._name = f"{module} {arguments[0] if arguments else ''}".strip()
        self._said = b""
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

    def say(self, line: str) -> None:
        """One line for the program's stdin. What it makes of it is heard; that it is gone, too."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._in, line.encode() + b"\n")

    def hear(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """What the program tells next. Raises BenchError where it ends instead, or says nothing for `limit_s`."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._said:
            left_s = deadline - time.monotonic()
            if not select.select([self._out], [], [], max(0.0, left_s))[0]:
                raise BenchError(f"{self._name} told nothing for {limit_s:.0f} s: measure less at a time")
            data = os.read(self._out, 1 << 16)
            if not data:
                raise BenchError(f"{self._name} ended early: {self._complaint()}")
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        """Ends the program if it has not ended."""
        if self._process.wait(0) is None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(_END_S)
        self._close_pipes()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_pipes(self) -> None:
        for descriptor in (self._in, self._out, self._err):
            os.close(descriptor)

    def _complaint(self) -> str:
        """The last line that it wrote to stderr."""
        self._process.wait(_END_S)
        os.set_blocking(self._err, False)
        try:
            lines = os.read(self._err, 1 << 16).decode(errors="replace").split("\n")
        except BlockingIOError:
            lines = []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
