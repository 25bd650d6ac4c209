"""Runs rank processes on the nodes of a cluster and collects what they report.

    with RankProcesses(cluster, "softnic.experiments.train", "--events") as ranks:
        outcomes = ranks.collect("outcome", on_event=lambda event: progress(f"step {event['step']}"))

A rank reports events by `report_json` (child_process.py) and a failure by `report_failure`. One failed rank fails the
run: `collect` raises one line that names the rank that failed first by its own fault.
"""

from __future__ import annotations

import os
import select
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from softnic.cluster import Cluster
from softnic.comm.errors import CommError
from softnic.experiments.child_process import LIMIT_S, ChildProcess, report_json
from softnic.experiments.report import MeasurementError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "SOFTNIC_THREADS": "1"}
"""Default environment of ranks, which share the cores with other ranks and with NICs."""
_FAILING_S = 30.0
"""Seconds in which the other ranks notice that a rank failed."""

Event = dict[str, Any]
OnEvent = Callable[[Event], None]


def ignore(_event: object) -> None:
    """Ignore an event."""


class Throttle:
    """Limits how often progress is reported."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = 0.0

    def is_due(self) -> bool:
        """Return whether the interval has passed since the last call that returned True."""
        now = time.monotonic()
        if now < self._due_s:
            return False
        self._due_s = now + self._interval_s
        return True


def report_failure(rank: int, error: Exception) -> None:
    """Report that this rank failed, on stdout as an event and on stderr with a traceback."""
    report_json(failed=f"rank {rank}: {error}", by_peer=isinstance(error, CommError))
    traceback.print_exc()


@dataclass(frozen=True)
class _Failure:
    reason: str
    by_peer: bool = False
    """Whether the rank failed because another one did."""


class RankProcesses:
    """One process per node of a cluster, each running the same module.

    Parameters
    ----------
    cluster
        The NICs. Nodes 0, 1, ... get the ranks of the same number.
    module, options
        Module that each process runs (`python -m module options`).
    ranks
        Number of processes; None: one for each node.
    env
        Environment besides the cluster's own variables; None: ONE_THREAD, overridden by this process's.
    """

    def __init__(
        self,
        cluster: Cluster,
        module: str,
        *options: str,
        ranks: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        start = partial(cluster.spawn, env={**ONE_THREAD, **os.environ} if env is None else env)
        self._processes: list[ChildProcess] = []
        try:
            for rank in range(cluster.nodes if ranks is None else ranks):
                self._processes.append(ChildProcess(start, rank, module, *options, name=f"rank {rank}"))
        except BaseException:
            self.close()
            raise

    def send(self, line: str, ranks: int | None = None) -> None:
        """Write a line to the stdin of all processes, or of the first `ranks`."""
        for process in self._processes[:ranks]:
            process.send_line(line)

    def collect(
        self, last: str, on_event: OnEvent = ignore, *, ranks: int | None = None, limit_s: float = LIMIT_S
    ) -> list[Event]:
        """Read events until all ranks have reported one with the key `last`.

        Parameters
        ----------
        last
            Key of the event that ends a rank's report.
        on_event
            Receives rank 0's events before that one.
        ranks
            Number of processes to read from; None: all.
        limit_s
            Limit of silence of all of them together.

        Returns
        -------
        list
            The last event of each rank, by rank.

        Raises
        ------
        MeasurementError
            A rank failed, ended early, or nothing was reported for `limit_s` seconds.
        """
        processes = self._processes[:ranks]
        results: dict[int, Event] = {}
        while len(results) < len(processes):
            waiting = {rank: process for rank, process in enumerate(processes) if rank not in results}
            for rank in _ready(waiting, limit_s):
                event = waiting[rank].receive(limit_s)
                if "failed" in event:
                    others = [process for other, process in waiting.items() if other != rank]
                    raise MeasurementError(_reason(_Failure(event["failed"], event["by_peer"]), others, last))
                if last in event:
                    results[rank] = event
                elif not rank:
                    on_event(event)
        return [results[rank] for rank in range(len(processes))]

    def close(self) -> None:
        """Kill the processes that still run."""
        for process in self._processes:
            process.close()
        self._processes.clear()

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ready(processes: Mapping[int, ChildProcess], limit_s: float) -> Sequence[int]:
    """Wait until some of the processes have an event or have ended, and return their ranks."""
    buffered = [rank for rank, process in processes.items() if process.has_event]
    if buffered:
        return buffered
    readable = select.select(list(processes.values()), [], [], limit_s)[0]
    if not readable:
        raise MeasurementError(f"the ranks reported nothing for {limit_s:.0f} s: measure less at a time")
    return [rank for rank, process in processes.items() if process in readable]


def _reason(failure: _Failure, others: Sequence[ChildProcess], last: str) -> str:
    """Return why a run failed: the failure of a rank that failed by its own fault, if there is one."""
    deadline = time.monotonic() + _FAILING_S
    for process in others if failure.by_peer else ():
        found = _failure_of(process, last, deadline)
        if found is not None and not found.by_peer:
            return found.reason
    return failure.reason


def _failure_of(process: ChildProcess, last: str, deadline: float) -> _Failure | None:
    """Read a process's events until it reports its failure. None: it has not failed by the deadline."""
    while time.monotonic() < deadline:
        try:
            event = process.receive(deadline - time.monotonic())
        except MeasurementError as error:
            return _Failure(str(error)) if time.monotonic() < deadline else None
        if "failed" in event:
            return _Failure(event["failed"], event["by_peer"])
        if last in event:
            return None
    return None
