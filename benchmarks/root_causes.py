"""How many injected faults `softnic stat --why` names first, with kind and rank, and how long it takes.

Four ranks sum floats without end. One of them, or its NIC or link, has a fault: lost frames, a low rate, a rank that
comes late or never, a NIC that gets little of its CPU, another call than the others'. Seeds vary place and degree.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from softnic.cluster.cluster import Cluster
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns

NODES = 4
RATE = "400mbit"
"""Of the links that have no fault, so that the CPU does not limit them; not emulated beside a slow link."""
START_S = 60.0
SETTLE_S = 1.0
KINDS = ("lossy link", "slow link", "late rank", "busy NIC", "mismatched call")

_RANK = """
import os, sys, time
import numpy as np
from softnic import MPI

comm, size, fault, place, first = MPI.COMM_WORLD, int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
given = np.ones(size, np.float32)
total = np.empty_like(given)
comm.Allreduce(given, total)

def report(event):
    open(os.path.join(os.environ["EVENTS"], f"{event}{comm.Get_rank()}"), "w").close()

for step in range(10**9):
    if step == first:
        report("reached")
    if comm.Get_rank() == place and step > first:
        if fault in ("late", "stuck"):
            time.sleep(0.3 if fault == "late" else 60)
        elif fault == "call":
            comm.Bcast(given, 0)
        elif fault == "size":
            comm.Allreduce(given[: size // 2], total[: size // 2])
    comm.Allreduce(given, total)
"""

_THROTTLE = """
import os, signal, sys, time

nic, runs_s = int(sys.argv[1]), float(sys.argv[2])
while True:
    os.kill(nic, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(nic, signal.SIGCONT)
    time.sleep(runs_s)
"""
"""Lets a process run in short times only."""


@dataclass(frozen=True)
class InjectedFault:
    kind: str
    rank: int
    size: int
    """Floats of each sum."""
    link: tuple[str, ...] = ()
    """Options of the rank's NIC."""
    program: str = "none"
    """What the rank does otherwise than the others."""
    runs_s: float = 0.0
    """For how long its NIC may run at a time; 0: always."""

    @classmethod
    def drawn(cls, kind: str, seed: int) -> InjectedFault:
        """Return the fault of a kind for a seed."""
        draw = random.Random(seed)
        rank, size = draw.randrange(NODES), draw.choice((20_000, 100_000, 400_000))
        if kind == "lossy link":
            return cls(kind, rank, size, ("--loss", draw.choice(("2%", "3%", "5%", "10%"))))
        if kind == "slow link":
            return cls(kind, rank, size, ("--rate", draw.choice(("5mbit", "10mbit", "20mbit", "30mbit"))))
        if kind == "late rank":
            return cls(kind, rank, size, program=draw.choice(("late", "stuck")))
        if kind == "mismatched call":
            return cls(kind, rank, size, program=draw.choice(("call", "size")))
        return cls(kind, rank, size, runs_s=draw.choice((0.005, 0.01, 0.02)))


@dataclass(frozen=True)
class CauseRow:
    kind: str = column("fault")
    named: int = column("named first, with its rank")
    faults: int = column("of")
    most_s: float = column("s at most", ".1f")
    missed: str = column("otherwise")


class FaultyCluster(Cluster):
    """The NIC of the fault's rank has its options."""

    def __init__(self, fault: InjectedFault, seed: int) -> None:
        self._fault = fault
        super().__init__(nodes=NODES, seed=seed, rate=None if fault.kind == "slow link" else RATE)

    def nic_arguments(self, node: int) -> list[str]:
        return list(self._fault.link) if node == self._fault.rank else []


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", action="append", choices=KINDS, help="inject only these")
    parser.add_argument("--faults", type=int, default=8, metavar="N", help="of each kind (8)")
    parser.add_argument("--seed", type=int, default=1, help="the first fault's; the next ones have the next (1)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[CauseRow]]:
    rows: list[CauseRow] = []
    for kind in given.kind or KINDS:
        answers, seconds = [], []
        for seed in range(given.seed, given.seed + given.faults):
            progress(f"{kind}, seed {seed}")
            fault = InjectedFault.drawn(kind, seed)
            found, took_s = _asked(fault, seed)
            seconds.append(took_s)
            if (kind, fault.rank) == (found.get("kind"), found.get("rank")):
                continue
            answers.append(f"seed {seed}: {found.get('kind', 'nothing')}, rank {found.get('rank', '-')}")
        named = given.faults - len(answers)
        row = CauseRow(kind, named, given.faults, max(seconds), "; ".join(answers))
        rows += as_measured([row], columns(CauseRow), progress)
    settings = {"seed": given.seed, "faults": given.faults, "nodes": NODES, "rate": RATE}
    return [MeasurementReport("root-causes", "Injected faults", columns(CauseRow), rows, settings)]


def _asked(fault: InjectedFault, seed: int) -> tuple[dict[str, Any], float]:
    """Return the first finding, empty if there is none, and how long the command took."""
    with tempfile.TemporaryDirectory() as events, FaultyCluster(fault, seed) as cluster:
        with Path(os.devnull).open("r+b", buffering=0) as null:
            arguments = (str(fault.size), fault.program, str(fault.rank), str(3 + seed % 6))
            for rank in range(NODES):
                argv = [sys.executable, "-c", _RANK, *arguments]
                cluster.spawn(rank, argv, [null.fileno()] * 3, {**os.environ, "EVENTS": events})
        _wait_for(Path(events))
        with _throttled(cluster.nics[fault.rank].pid, fault.runs_s):
            time.sleep(2 * SETTLE_S)
            began = time.monotonic()
            command = [sys.executable, "-m", "softnic", "stat", "--why", "--json", "-"]
            command += [f"--nic={path}" for path in cluster.controls]
            done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
            took_s = time.monotonic() - began
    if done.returncode:
        raise MeasurementError(f"softnic stat --why: {done.stderr.strip()}")
    findings = json.loads(done.stdout)
    return (findings[0] if findings else {}), took_s


def _wait_for(events: Path) -> None:
    deadline = time.monotonic() + START_S
    while len(list(events.iterdir())) < NODES:
        if time.monotonic() > deadline:
            raise MeasurementError(f"the ranks did not come to the fault in {START_S:.0f} s")
        time.sleep(0.05)


@contextlib.contextmanager
def _throttled(pid: int, runs_s: float) -> Iterator[None]:
    """Let a process run for `runs_s` at a time, with pauses of 0.1 s between; 0: without pauses."""
    if not runs_s:
        yield
        return
    throttle = subprocess.Popen([sys.executable, "-c", _THROTTLE, str(pid), str(runs_s)])
    try:
        yield
    finally:
        throttle.kill()
        throttle.wait()
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(harness.main("root_causes", __doc__, measured, add_options))
