"""The processes of a job, one for each rank, and their output, for `softnic run`.

If a rank fails or a NIC ends, the other ranks get SIGTERM and, if they do not exit, SIGKILL.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from softnic.cluster.abort_record import VARIABLE as ABORT_VARIABLE
from softnic.cluster.abort_record import read_abort
from softnic.cluster.cluster import Cluster
from softnic.cluster.supervisor import SupervisedProcess
from softnic.commands.churn import TEXTS, Churn


def defaults(ranks: int) -> dict[str, str]:
    """Return the default environment of ranks, which share the cores, and whose lines should appear when they are
    written."""
    share = max(1, len(os.sched_getaffinity(0)) // ranks)
    return {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "SOFTNIC_THREADS": str(share)}


RESTARTS_VARIABLE = "SOFTNIC_RESTARTS"
"""Of ranks under --churn: how many processes of this rank have ended before. Those with 1 and more join a job."""
END_S = 3.0
"""From SIGTERM to SIGKILL."""
DRAIN_S = 0.2
"""Time for which output of descendants is read after the ranks have ended."""
_LOOK_S = 0.2
"""How often it is looked whether the ranks have met."""
_PATIENCE = 3.0
"""Periods of churn after which it begins though they have not: not all programs have communicators."""
LONGEST_LINE = 1 << 16
"""Bytes; a longer line is returned in parts."""


class Line(NamedTuple):
    """A line of output without its newline."""

    rank: int
    is_error: bool
    """Written to stderr."""
    text: bytes


class JobFailed(Exception):
    """A rank failed, or a NIC ended (`rank` is None). `exit_code` is that of the command."""

    def __init__(self, message: str, exit_code: int, rank: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.rank = rank


class _Output:
    """Splits the output of one pipe into lines."""

    def __init__(self, rank: int, is_error: bool, fd: int) -> None:
        self.fd = fd
        self._line = Line(rank, is_error, b"")
        self._partial = b""

    def read(self) -> tuple[list[Line], bool]:
        """Return the lines that are complete, and whether the pipe is at its end."""
        data = os.read(self.fd, 1 << 16)
        *lines, self._partial = (self._partial + data).split(b"\n")
        if self._partial and (not data or len(self._partial) > LONGEST_LINE):
            lines.append(self._partial)
            self._partial = b""
        return [self._line._replace(text=text) for text in lines], not data


class Ranks:
    """Starts a command on each node of a cluster. `env` is the environment besides that of Cluster.env.

    With `churn`, ranks are killed and start again, with the number of their earlier processes in RESTARTS_VARIABLE, and
    nodes are cut off; what happens is among the lines.
    """

    def __init__(
        self, cluster: Cluster, argv: Sequence[str], env: Mapping[str, str] | None = None, churn: Churn | None = None
    ) -> None:
        self._cluster, self._argv, self._churn = cluster, argv, churn
        self._churn_by = 0.0 if churn is None else time.monotonic() + _PATIENCE * churn.period_s
        self._restarts = [0] * cluster.nodes
        self._down: set[int] = set()
        """Ranks that churn has killed, and that have not started again."""
        self._abort_record = cluster.directory / "abort"
        self._abort_record.unlink(missing_ok=True)
        self._env = {**(os.environ if env is None else env), ABORT_VARIABLE: str(self._abort_record)}
        self._selector = selectors.DefaultSelector()
        self._ending: float | None = None
        """Time of the first signal to the ranks."""
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """A signal that arrives just before `lines` waits interrupts the wait."""
        self._former_wakeup_fd = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        self._selector.register(self._wake[0], selectors.EVENT_READ, self._wake)
        self.processes: list[SupervisedProcess] = []
        try:
            for rank in range(cluster.nodes):
                self.processes.append(self._spawn(rank))
            for nic in cluster.nics:
                self._selector.register(nic, selectors.EVENT_READ)
        except BaseException:
            self.close()
            raise

    def _spawn(self, rank: int) -> SupervisedProcess:
        """Start a process of a rank, and watch it and its output."""
        env = self._env
        if self._churn is not None:
            env = {**env, RESTARTS_VARIABLE: str(self._restarts[rank])}
        pipes = [os.pipe(), os.pipe()]
        for is_error, (read_end, _) in enumerate(pipes):
            self._selector.register(read_end, selectors.EVENT_READ, _Output(rank, bool(is_error), read_end))
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            process = self._cluster.spawn(rank, self._argv, [null, *(write_end for _, write_end in pipes)], env)
        finally:
            for descriptor in (null, *(write_end for _, write_end in pipes)):
                os.close(descriptor)
        self._selector.register(process, selectors.EVENT_READ)
        return process

    def lines(self) -> Iterator[Line]:
        """Yield all output until every rank has ended. Then raises JobFailed unless all of them succeeded."""
        failure: JobFailed | None = None
        over: float | None = None
        while over is None or (time.monotonic() < over and self._has_output()):
            ready = self._selector.select(self._timeout_s(over))
            ended = False
            for key, _ in ready:
                if isinstance(key.data, _Output):
                    yield from self._take(key.data)
                elif key.data is self._wake:
                    os.read(self._wake[0], 4096)  # its handler has run
                else:
                    self._selector.unregister(key.fileobj)
                    ended = True
            yield from self._churned()
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

    def _churned(self) -> Iterator[Line]:
        """Do what churn does now, and say so, while the job goes on."""
        if self._churn is None or self._ending is not None:
            return
        if not self._churn.is_started:
            if time.monotonic() < self._churn_by and not self._have_met():
                return
            self._churn.start(time.monotonic())
        running = [rank for rank, process in enumerate(self.processes) if process.poll() is None]
        if len(running) + len(self._down) < len(self.processes):
            running = []  # a rank has ended by itself: so will the others
        for event in self._churn.due(time.monotonic(), running):
            rank, process = event.rank, self.processes[event.rank]
            if event.kind == "kill":
                self._down.add(rank)
                process.signal(signal.SIGKILL)
            elif event.kind == "start":
                if all(each.poll() is not None for each in self.processes):
                    return  # the job is over
                self._down.discard(rank)
                self._restarts[rank] += 1
                self.processes[rank] = self._spawn(rank)
            else:
                (self._cluster.cut if event.kind == "cut" else self._cluster.mend)(rank)
            yield Line(rank, True, f"softnic run: {TEXTS[event.kind].format(rank)}".encode())

    def _have_met(self) -> bool:
        """Return whether each rank belongs to a communicator."""
        try:
            return all(self._cluster.stats(node).communicators for node in range(self._cluster.nodes))
        except OSError:  # a NIC has ended
            return False

    def signal(self, number: int) -> None:
        """Send a signal to all ranks, followed by SIGCONT for stopped ones. They are expected to end soon."""
        if self._ending is None:
            self._ending = time.monotonic()
        for process in self.processes:
            process.signal(number)
            process.signal(signal.SIGCONT)

    def close(self) -> None:
        """Close the pipes. The cluster ends ranks that still run."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Output):
                os.close(key.data.fd)
        self._selector.close()
        signal.set_wakeup_fd(self._former_wakeup_fd)
        for end in self._wake:
            os.close(end)

    def _take(self, output: _Output) -> Iterator[Line]:
        lines, over = output.read()
        yield from lines
        if over:
            self._selector.unregister(output.fd)
            os.close(output.fd)

    def _has_output(self) -> bool:
        return any(isinstance(key.data, _Output) for key in self._selector.get_map().values())

    def _timeout_s(self, over: float | None) -> float | None:
        """Return the time limit of the next wait; None: no limit."""
        if over is not None:
            return max(0.0, over - time.monotonic())
        if self._ending is not None:
            return max(0.05, self._ending + END_S - time.monotonic())
        if self._churn is None:
            return None
        return max(0.0, self._churn.next_time() - time.monotonic()) if self._churn.is_started else _LOOK_S

    def _failure(self) -> JobFailed | None:
        """Return the first failure, if there is one."""
        if lost := self._cluster.lost_nic():
            return JobFailed(f"{lost}; the job is ended", 1)
        if aborted := read_abort(self._abort_record):
            message = f"rank {aborted.rank} aborted the job with exit code {aborted.exit_code}"
            return JobFailed(message, aborted.exit_code, aborted.rank)
        for rank, process in enumerate(self.processes):
            if rank not in self._down and (code := process.poll()):
                message = f"rank {rank} {process.ending()}; the job is ended"
                return JobFailed(message, code if code > 0 else 128 - code, rank)
        return None
