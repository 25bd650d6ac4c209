"""Training by torchft whose replicas are killed and come back, over softnic's process group and over Gloo.

  python -m benchmarks.elastic                              # throughput with a fault every 30 s, beside Gloo
  python -m benchmarks.elastic --what faults --faults 200   # seeded faults of six kinds: nothing hangs, weights agree
  python -m benchmarks.elastic --what joins --rate 1gbit    # from a process's start to its first counted step

Needs torch and torchft. All replicas share the cores of this machine: compare rows of one run. Without faults and
without torchft is torch's DistributedDataParallel. "Idle starts" are processes that import and build what a replica
does, and end: what a start costs whatever the job does about it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from benchmarks.elastic import faults, joins, throughput
from benchmarks.elastic.job import JobPlan
from benchmarks.elastic.replica import GLOO, SOFTNIC
from softnic.experiments import torch_models
from softnic.measure.progress import Measured, as_measured, row_text
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, columns


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--what", choices=["throughput", "faults", "joins"], default="throughput")
    parser.add_argument("--only", choices=[SOFTNIC, GLOO], help="one backend")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--model", choices=torch_models.NAMES, default="transformer")
    parser.add_argument("--batch", type=int, default=8, help="samples of a replica (8)")
    parser.add_argument("--codec", default="rht:4", help="of gradients over softnic (rht:4); exact")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each throughput (120)")
    parser.add_argument("--period", type=float, default=30.0, help="seconds between faults (30)")
    parser.add_argument("--faults", type=int, default=20, help="of --what faults (20)")
    parser.add_argument("--rate", help="of softnic's emulated links (none)")
    parser.add_argument("--megabytes", type=float, default=100.0, help="of state, in --what joins (100)")
    parser.add_argument("--seed", type=int, default=7)


def measured(given: argparse.Namespace, progress: Progress) -> Sequence[MeasurementReport[Any]]:
    for name in ("torch", "torchft"):
        if importlib.util.find_spec(name) is None:
            raise MeasurementError(f"{name} is needed: pip install 'softnic[torchft]'")
    backends = [given.only] if given.only else [SOFTNIC, GLOO]
    codec = "" if given.codec == "exact" else given.codec
    plans = [
        JobPlan(
            backend,
            given.replicas,
            given.model,
            given.batch,
            codec if backend == SOFTNIC else "",
            rate=given.rate if backend == SOFTNIC else None,
        )
        for backend in backends
    ]
    settings = vars(given)
    title = f"{given.replicas} replicas of {given.model}, "
    if given.what == "throughput":
        rows = (throughput.measure(plan, given.seconds, given.period, given.seed, progress) for plan in plans)
        shown = columns(throughput.ThroughputRow)
        title += f"a fault every {given.period:.0f} s"
        return [MeasurementReport("elastic", title, shown, as_measured(rows, shown, progress), settings)]
    if given.what == "joins":
        found = joins.measure(plans, given.megabytes, progress)
        return [MeasurementReport("elastic-joins", title + "a new process", columns(joins.JoinRow), found, settings)]
    kept: list[faults.FaultRow] = []
    cells = columns(faults.FaultRow)
    for plan in plans:
        for row in faults.measure(plan, given.faults, given.seed, progress):
            progress(Measured(row_text(cells, row)))
            kept.append(row)
    return [MeasurementReport("elastic-faults", title + f"{given.faults} faults", cells, kept, settings)]


if __name__ == "__main__":
    sys.exit(harness.main("elastic", __doc__, measured, add_options))
