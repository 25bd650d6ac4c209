"""Sharded training (FSDP2) with weights in bfloat16: bytes and time of a step, compressed both ways and not.

python -m benchmarks.fsdp2 [--rate 100mbit] [--steps 40] [--rounds 3] [--json FILE]

docs/examples/fsdp2.py trains its transformer on four ranks, each with a NIC on an emulated link.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from softnic.cluster.cluster import Cluster
from softnic.experiments.traffic import NicTraffic
from softnic.measure.progress import Measured
from softnic.measure.report import Column, MeasurementError, MeasurementReport, Progress, figure
from softnic.measure.timing import median

PROGRAM = Path(__file__).resolve().parent.parent / "docs" / "examples" / "fsdp2.py"
RANKS = 4
WAYS = {"unencoded": ("none", "none"), "both ways": ("rht:4", "exact:16"), "gradients alone": ("rht:4", "none")}
LIMIT_S = 1800.0


@dataclass(frozen=True)
class ShardedRow:
    way: str
    mb_per_step: float
    """That all NICs send, with all headers."""
    of_unencoded: float
    step_s: float
    """Median of the rounds."""
    time_of_unencoded: float
    loss: float
    """Mean of the last 20 steps of the last round."""


@dataclass(frozen=True)
class Run:
    step_s: float
    mb_per_step: float
    loss: float


def train(way: str, rate: str, steps: int) -> Run:
    gradients, weights = WAYS[way]
    command = [sys.executable, str(PROGRAM), "--steps", str(steps), "--gradients", gradients, "--weights", weights]
    with Cluster(nodes=RANKS, rate=rate, delay="50us") as cluster:
        ranks = [
            subprocess.Popen(
                command, env=os.environ | cluster.env(rank), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for rank in range(RANKS)
        ]
        outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
        traffic = NicTraffic.of(cluster)
    found = re.search(r"(\d+) ms a step", outputs[0][0])
    losses = re.findall(r"step \d+: loss ([\d.]+)", outputs[0][0])
    if found is None or not losses:
        raise MeasurementError(f"{PROGRAM.name} failed: {outputs[0][1].strip().splitlines()[-1:]}")
    return Run(int(found[1]) / 1000, traffic.wire / steps / 1e6, float(losses[-1]))


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[ShardedRow]]:
    runs: dict[str, list[Run]] = {way: [] for way in given.way or WAYS}
    for number in range(given.rounds):
        for way, done in runs.items():
            what = f"{way}, round {number + 1} of {given.rounds}"
            progress(what)
            done.append(train(way, given.rate, given.steps))
            progress(Measured(f"{what}: {done[-1].step_s * 1e3:.0f} ms a step, {done[-1].mb_per_step:.2f} MB"))
    first = next(iter(runs.values()))
    bytes_of, time_of = first[-1].mb_per_step, median([run.step_s for run in first])
    rows = []
    for way, done in runs.items():
        step_s = median([run.step_s for run in done])
        sent = done[-1].mb_per_step
        rows.append(ShardedRow(way, sent, sent / bytes_of, step_s, step_s / time_of, done[-1].loss))
    title = f"FSDP2 with bfloat16 weights, {RANKS} ranks, {given.rate}"
    settings = {"rate": given.rate, "steps": given.steps, "rounds": given.rounds}
    return [MeasurementReport("fsdp2", title, columns(), rows, settings)]


def columns() -> list[Column[ShardedRow]]:
    return [
        Column("exchange", lambda row: row.way, left=True),
        Column("MB a step", lambda row: figure(row.mb_per_step)),
        Column("of unencoded", lambda row: figure(row.of_unencoded)),
        Column("s a step", lambda row: figure(row.step_s)),
        Column("of unencoded", lambda row: figure(row.time_of_unencoded)),
        Column("loss", lambda row: figure(row.loss, ".4g")),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", default="100mbit", help="of each rank's link (100mbit)")
    parser.add_argument("--steps", type=int, default=40, help="a multiple of 20 (40)")
    parser.add_argument("--way", action="append", choices=WAYS, help="may be repeated; shares are of the first one")
    harness.add_rounds(parser, 3)


if __name__ == "__main__":
    sys.exit(harness.main("fsdp2", __doc__, measured, add_options))
