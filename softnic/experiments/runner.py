"""Runs rank processes on the nodes of a cluster and collects what they report.

    with RankPool(cluster, "softnic.experiments.train", "--events") as ranks:
        outcomes = ranks.collect("outcome", on_event=lambda event: progress(f"step {event['step']}"))

A rank reports events by `report_json` (child_process.py) and a failure by `report_failure`. One failed rank fails the
run: `collect` raises one line that names a rank which failed by its own fault.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from softnic.cluster.cluster import Cluster
from softnic.comm.errors import CommError
from softnic.measure.child_process import LIMIT_S, ChildProcess, report_json
from softnic.measure.report import MeasurementError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "SOFTNIC_THREADS": "1"}
"""Default environment of ranks, which share the cores with other ranks and with NICs."""
_FAILING_S = 30.0
"""Longest silence in which the other ranks notice that a rank failed."""

Event = dict[str, Any]


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
        due = now >= self._due_s
        if due:
            self._due_s = now + self._interval_s
        return due


def report_failure(rank: int, error: Exception) -> None:
    """Report that this rank failed, as an event, and write the traceback to stderr."""
    report_json(failed=f"rank {rank}: {error}", by_peer=isinstance(error, CommError))
    traceback.print_exc()


class RankPool(ExitStack):
    """One process per node of a cluster, each running the same module, until `close`.

    Parameters
    ----------
    cluster
        The NICs. Rank r runs on node r.
    module, options
        Module that each process runs (`python -m module options`).
    env
        Environment besides the cluster's own variables; None: ONE_THREAD, overridden by this process's.
    """

    def __init__(self, cluster: Cluster, module: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        start = partial(cluster.spawn, env={**ONE_THREAD, **os.environ} if env is None else env)
        with ExitStack() as stack:
            self._processes = [
                stack.enter_context(ChildProcess(start, rank, module, *options, name=f"rank {rank}"))
                for rank in range(cluster.nodes)
            ]
            self.push(stack.pop_all())

    def send(self, line: str, ranks: int | None = None) -> None:
        """Write a line to the stdin of all processes, or of the first `ranks`."""
        for process in self._processes[:ranks]:
            process.send_line(line)

    def collect(
        self,
        last: str,
        on_event: Callable[[Event], None] = ignore,
        *,
        ranks: int | None = None,
        limit_s: float = LIMIT_S,
    ) -> list[Event]:
        """Read events until every rank has reported one with the key `last`, and return these by rank.

        `on_event` receives rank 0's events before that one; `ranks` is the number of processes to read from (None:
        all). Raises MeasurementError if a rank fails or ends early, or nothing is reported for `limit_s` seconds.
        """
        results: dict[int, Event] = {}
        pending = dict(enumerate(self._processes[:ranks]))
        failure = ""
        while pending:
            ready = _ready(pending, _FAILING_S if failure else limit_s)
            if not ready:
                raise MeasurementError(
                    failure or f"the ranks reported nothing for {limit_s:.0f} s: measure less at a time"
                )
            for rank in ready:
                event = pending[rank].receive(limit_s)
                if "failed" in event and not event["by_peer"]:
                    raise MeasurementError(event["failed"])
                if "failed" in event:
                    failure = failure or event["failed"]
                elif last in event:
                    results[rank] = event
                else:
                    if not rank:
                        on_event(event)
                    continue
                del pending[rank]
        if failure:
            raise MeasurementError(failure)
        return [results[rank] for rank in sorted(results)]


def _ready(processes: Mapping[int, ChildProcess], limit_s: float) -> list[int]:
    """Wait until some of the processes have an event or have ended, and return their ranks."""
    buffered = [rank for rank, process in processes.items() if process.has_event]
    if buffered:
        return buffered
    readable = wait([process.fileno() for process in processes.values()], limit_s)
    return [rank for rank, process in processes.items() if process.fileno() in readable]
