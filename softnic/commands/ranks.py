"""The processes of a job, one a rank, and their output as it comes: what `run` and `demo` share.

One rank that fails, or one NIC that ends, ends the job: the others get SIGTERM and, should they stay, SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from softnic.cluster import Cluster

DEFAULTS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "SOFTNIC_THREADS": "1"}
"""What ranks find in their environment where it says nothing else: many of them share the cores, and their lines
should come when they are written."""

END_S = 3.0
"""From SIGTERM to SIGKILL."""
DRAIN_S = 0.2
"""How long output may come behind the end of the ranks, from what they left behind."""
LONGEST_LINE = 1 << 16
"""Bytes; a longer one is handed out in pieces."""


class Line(NamedTuple):
    """A line that a rank wrote, without its end."""

    rank: int
    is_error: bool
    """Written to stderr."""
    text: bytes


class JobFailed(Exception):
    """A rank or (`rank` is None then) a NIC ended that should not have. `exit_code` is the one to end with."""

    def __init__(self, message: str, exit_code: int, rank: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.rank = rank


class _Output:
    """One descriptor that a rank writes to, cut into lines."""

    def __init__(self, rank: int, is_error: bool, descriptor: int) -> None:
        self.descriptor = descriptor
        self._line = Line(rank, is_error, b"")
        self._begun = b""

    def read(self) -> tuple[list[Line], bool]:
        """The lines that are complete now, and whether it is over."""
        data = os.read(self.descriptor, 1 << 16)
        *whole, self._begun = (self._begun + data).split(b"\n")
        if self._begun and (not data or len(self._begun) > LONGEST_LINE):
            whole.append(self._begun)
            self._begun = b""
        return [self._line._replace(text=text) for text in whole], not data


class Ranks:
    """Starts `argv` once a node of the cluster; `env` is what all ranks find besides their own variables."""

    def __init__(self, cluster: Cluster, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._cluster = cluster
        self._selector = selectors.DefaultSelector()
        self._ending: float | None = None
        """When the ranks were told to end."""
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """A signal that comes just before `lines` waits ends the wait all the same."""
        self._former_wake = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        self._selector.register(self._wake[0], selectors.EVENT_READ, self._wake)
        self.processes = []
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            for rank in range(cluster.nodes):
                pipes = [os.pipe(), os.pipe()]
                for is_error, (read_end, _) in enumerate(pipes):
                    output = _Output(rank, bool(is_error), read_end)
                    self._selector.register(read_end, selectors.EVENT_READ, output)
                try:
                    process = cluster.spawn(rank, argv, [null, *(write_end for _, write_end in pipes)], env)
                finally:
                    for _, write_end in pipes:
                        os.close(write_end)
                self.processes.append(process)
                self._selector.register(process, selectors.EVENT_READ)
            for nic in cluster.nics:
                self._selector.register(nic, selectors.EVENT_READ)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(null)

    def lines(self) -> Iterator[Line]:
        """All output until every rank has ended. Then raises JobFailed unless all of them ended well."""
        failure: JobFailed | None = None
        over: float | None = None
        while over is None or (time.monotonic() < over and self._has_output()):
            ready = self._selector.select(self._patience_s(over))
            ended = False
            for key, _ in ready:
                if isinstance(key.data, _Output):
                    yield from self._take(key.data)
                elif key.data is self._wake:
                    os.read(self._wake[0], 4096)  # its handler has run
                else:
                    self._selector.unregister(key.fileobj)
                    ended = True
            if ended:
                failure = failure or self._failure()
                if failure is not None and self._ending is None:
                    self.signal(signal.SIGTERM)
            if self._ending is not None and time.monotonic() > self._ending + END_S:
                self.signal(signal.SIGKILL)
            if over is None and all(process.poll() is not None for process in self.processes):
                over = time.monotonic() + DRAIN_S
        if failure is not None:
            raise failure

    def signal(self, number: int) -> None:
        """Sends a signal to all ranks, and has those that are stopped go on to it. They are expected to end soon."""
        if self._ending is None:
            self._ending = time.monotonic()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):  # the supervisor is gone, and so are they
                process.signal(number)
                process.signal(signal.SIGCONT)

    def close(self) -> None:
        """Closes the pipes. Ranks that run are left to the cluster."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Output):
                os.close(key.data.descriptor)
        self._selector.close()
        signal.set_wakeup_fd(self._former_wake)
        for end in self._wake:
            os.close(end)

    def _take(self, output: _Output) -> Iterator[Line]:
        lines, over = output.read()
        yield from lines
        if over:
            self._selector.unregister(output.descriptor)
            os.close(output.descriptor)

    def _has_output(self) -> bool:
        return any(isinstance(key.data, _Output) for key in self._selector.get_map().values())

    def _patience_s(self, over: float | None) -> float | None:
        """How long nothing may happen."""
        if over is not None:
            return max(0.0, over - time.monotonic())
        if self._ending is not None:
            return max(0.05, self._ending + END_S - time.monotonic())
        return None

    def _failure(self) -> JobFailed | None:
        """The first thing that went wrong, if something did."""
        if lost := self._cluster.lost_nic():
            return JobFailed(f"{lost}; the job is ended", 1)
        for rank, process in enumerate(self.processes):
            if code := process.poll():
                message = f"rank {rank} {process.ending()}; the job is ended"
                return JobFailed(message, code if code > 0 else 128 - code, rank)
        return None
