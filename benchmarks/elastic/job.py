"""A job of replicas that are killed, stopped, cut off and started again, and what each of them reports."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.elastic.replica import ELASTIC, PLAIN, SOFTNIC
from benchmarks.harness import python_path
from softnic.cluster.cluster import Cluster
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess
from softnic.measure.child_process import ChildProcess
from softnic.measure.report import MeasurementError

START_S = 60.0
"""Until a lighthouse has started."""


@dataclass(frozen=True)
class JobPlan:
    """What replicas run."""

    backend: str
    replicas: int = 8
    model: str = "transformer"
    batch: int = 8
    codec: str = ""
    what: str = ELASTIC
    transport: str = SOFTNIC
    rate: str | None = None
    """Of the emulated links of softnic's NICs."""
    padding: int = 0
    limit_s: float = 10.0
    """Of a call."""
    digest_every: int = 1
    join_ms: int = 500
    """How long the lighthouse waits for members that are alive and have not asked for the next quorum. With less than a
    receipt of the state slows a member down, the others leave it behind again and again."""


@dataclass
class Life:
    """One process of a replica, and what it has reported."""

    number: int
    process: ChildProcess
    started: float
    """As time.monotonic, like all times here."""
    events: list[dict[str, Any]] = field(default_factory=list)
    ended: float | None = None
    """When it was killed."""

    def steps(self) -> list[dict[str, Any]]:
        """Return the steps that were committed."""
        return [event for event in self.events if event.get("committed")]

    def first_step_after(self, since: float, below: int | None = None) -> float | None:
        """Return when it had committed the first step after a time that it took part in, with fewer members than
        `below`; None: not yet. A step in which a replica dies may still be of all."""
        found = None
        for event in reversed(self.events):
            if event["at"] <= since:
                break
            if event.get("counted") and (below is None or event["members"] < below):
                found = float(event["at"])
        return found

    def phase(self, name: str) -> float | None:
        """Return when a phase of its start was over."""
        return next((float(event["at"]) for event in self.events if event.get("phase") == name), None)


class ElasticJob:
    """Replicas, one on each node, and torchft's lighthouse, until `close`.

    Raises MeasurementError, ClusterError and OSError.
    """

    def __init__(self, plan: JobPlan, directory: Path) -> None:
        self.plan = plan
        self.lives: list[Life] = []
        self.running: dict[int, Life] = {}
        """By number of the replica."""
        self._directory = directory
        self._selector = selectors.DefaultSelector()
        self._cluster = Cluster(nodes=plan.replicas, rate=plan.rate) if plan.backend == SOFTNIC else None
        self._supervisor = ProcessSupervisor()
        self._port = _free_port()
        self._lighthouse: ChildProcess | None = None
        self._address = ""
        if plan.what == ELASTIC:
            self.start_lighthouse()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for life in self.running.values():
            life.process.close()
        self.running.clear()
        if self._lighthouse is not None:
            self._lighthouse.close()
        if self._cluster is not None:
            self._cluster.stop()
        self._supervisor.stop()
        self._selector.close()

    # -- processes ---------------------------------------------------------------------------------------------------

    def start_lighthouse(self) -> None:
        """Start torchft's lighthouse, at the port that it had before."""
        least = str(self.plan.replicas // 2 + 1)  # else a job may begin as two
        process = ChildProcess(
            self._spawn, -1, "benchmarks.elastic.lighthouse", str(self._port), least, str(self.plan.join_ms)
        )
        self._lighthouse = process
        self._address = str(process.receive(START_S)["address"])

    def kill_lighthouse(self) -> None:
        """End the lighthouse as a crash does."""
        assert self._lighthouse is not None
        self._lighthouse.close()

    def start(self, number: int, what: str = "") -> Life:
        """Start a process of a replica."""
        plan = self.plan
        options = ["--what", what or plan.what, "--backend", plan.backend, "--number", str(number)]
        options += ["--model", plan.model, "--batch", str(plan.batch), "--limit", str(plan.limit_s)]
        options += ["--codec", plan.codec, "--transport", plan.transport, "--padding", str(plan.padding)]
        options += ["--digest-every", str(plan.digest_every)]
        if plan.what == PLAIN:
            options += ["--size", str(plan.replicas), "--port", str(self._port)]
        else:
            options += ["--lighthouse", self._address]
        begun = time.monotonic()
        process = ChildProcess(self._spawn, number, "benchmarks.elastic.replica", *options, name=f"replica {number}")
        life = Life(number, process, begun)
        self.lives.append(life)
        if what in ("", plan.what):
            self.running[number] = life
            self._selector.register(process, selectors.EVENT_READ, life)
        return life

    def _spawn(self, number: int, argv: Sequence[str], fds: Sequence[int]) -> SupervisedProcess:
        env = {**os.environ, "PYTHONPATH": python_path(), "RUST_LOG": "off", "OMP_NUM_THREADS": "1"}
        log = os.open(self._directory / f"replica{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            given = [*fds[:2], log]
            if self._cluster is None or number < 0:
                return self._supervisor.start(argv, given, env)
            return self._cluster.spawn(number, argv, given, env)
        finally:
            os.close(log)

    def kill(self, number: int) -> Life:
        """Kill the process of a replica. Return its life."""
        life = self.running.pop(number)
        self._selector.unregister(life.process)
        life.ended = time.monotonic()
        life.process.close()
        return life

    def freeze(self, number: int) -> None:
        """Stop the process of a replica and cut its node off: nothing says that it is gone."""
        os.kill(self.running[number].process.pid, signal.SIGSTOP)
        self.cut(number)

    def cut(self, number: int) -> None:
        """Cut a node off."""
        if self._cluster is not None:
            self._cluster.cut(number)

    def mend(self, number: int) -> None:
        """End what `cut` has begun."""
        if self._cluster is not None:
            self._cluster.mend(number)

    # -- what they report --------------------------------------------------------------------------------------------

    def watch(self, seconds: float) -> None:
        """Take in what replicas report for a while. Raises MeasurementError if one ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._take(left)

    def until(self, what: str, limit_s: float, done: Callable[[], bool]) -> None:
        """Take in what replicas report until `done()`. Raises MeasurementError after the limit, or if one ends."""
        until = time.monotonic() + limit_s
        while not done():
            left = until - time.monotonic()
            if left <= 0:
                raise MeasurementError(f"{what}: not within {limit_s:.0f} s")
            self._take(min(left, 0.5))

    def _take(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            life: Life = key.data
            try:
                life.events.append(life.process.receive(1.0))
            except MeasurementError as error:
                log = (self._directory / f"replica{life.number}.log").read_text(errors="replace")
                last = next((line for line in reversed(log.splitlines()) if line.strip()), "it wrote nothing")
                raise MeasurementError(f"replica {life.number} has ended: {last}") from error
            while life.process.has_event:
                life.events.append(life.process.receive(1.0))

    def now(self) -> float:
        return time.monotonic()

    def all_have_stepped(self, since: float, but: Sequence[int] = (), below: int | None = None) -> bool:
        """Return whether each replica, but some, has committed a step that it took part in after a time, with fewer
        members than `below`."""
        waited = [life for number, life in self.running.items() if number not in but]
        return all(life.first_step_after(since, below) is not None for life in waited)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def differing(lives: Sequence[Life]) -> list[int]:
    """Return the steps after which members' weights differed."""
    seen: dict[int, set[int]] = {}
    for life in lives:
        for event in life.steps():
            if event["digest"] is not None:
                seen.setdefault(event["step"], set()).add(event["digest"])
    return sorted(step for step, digests in seen.items() if len(digests) > 1)
