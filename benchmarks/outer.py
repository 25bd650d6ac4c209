"""Local training with outer steps over a slow link: bytes and loss, beside the mean of gradients in each step.

  python -m benchmarks.outer
  python -m benchmarks.outer --every 50 --steps 500 --ways diloco:feedback:rht:4 streaming:rht:4

Ranks are processes on NICs with emulated links. The reference, DistributedDataParallel's sum in each step, is trained
on links without a limit, which changes nothing but its time; its bytes are those of torch's bf16_compress_hook, two for
each parameter and step. What a rank sends to one other rank is counted for all: an all-reduce sends it 2 (N-1) / N
times, and sparseloco N-1 times.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.outer_rank import DDP
from softnic.cluster.cluster import Cluster
from softnic.experiments import torch_models
from softnic.measure.child_process import rank_processes
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns

WAYS = ("diloco:exact", "diloco:feedback:rht:4", "diloco:feedback:rht:3", "diloco:sparseloco:0.02,2", "streaming:rht:4")
BF16_BYTES = 2
LIMIT_S = 3600.0


@dataclass(frozen=True)
class OuterRow:
    way: str = column("training")
    times_sent: float = column("each rank's bytes leave, times", ".2f")
    megabytes: float = column("MB that a rank sends", ".3f")
    fewer: float = column("times fewer than DDP in bf16", ",.0f")
    loss: float = column("test loss", ".4f")
    beside: float = column("beside DDP's", "+.2%")
    step_ms: float = column("ms a step", ".1f")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=torch_models.NAMES, default="transformer")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000, help="inner steps (2000)")
    parser.add_argument("--every", type=int, default=100, help="inner steps between outer ones (100)")
    parser.add_argument("--batch", type=int, default=8, help="samples of a rank (8)")
    parser.add_argument("--rate", default="10mbit", help="of each link (10mbit)")
    parser.add_argument(
        "--ways", nargs="+", default=WAYS, metavar="WAY", help="diloco:METHOD, own:METHOD, streaming:CODEC"
    )
    parser.add_argument("--data", type=Path, help="text or images")


def measured(given: argparse.Namespace, progress: Progress) -> Sequence[MeasurementReport[OuterRow]]:
    shown = columns(OuterRow)
    title = f"{given.steps} steps of {given.model}, {given.ranks} ranks, an outer step every {given.every}"
    rows = as_measured(_rows(given, progress), shown, progress)
    return [MeasurementReport("outer", title, shown, rows, vars(given) | {"data": str(given.data)})]


def _rows(given: argparse.Namespace, progress: Progress) -> Iterator[OuterRow]:
    reference = None
    for way in (DDP, *given.ways):
        progress(way)
        found = _trained(given, way)
        loss, floats = float(found["loss"]), int(found["floats"])
        reference = loss if reference is None else reference
        times = given.ranks - 1 if "sparseloco" in way else 2 * (given.ranks - 1) / given.ranks
        bf16 = floats * BF16_BYTES * given.steps * 2 * (given.ranks - 1) / given.ranks
        finish = float(found["finish_bytes"]) * 2 * (given.ranks - 1) / given.ranks
        sent = bf16 if way == DDP else float(found["sent_bytes"]) * times + finish
        yield OuterRow(
            way=way,
            times_sent=times,
            megabytes=sent / 1e6,
            fewer=bf16 / sent,
            loss=loss,
            beside=loss / reference - 1,
            step_ms=1e3 * float(found["seconds"]) / given.steps,
        )


def _trained(given: argparse.Namespace, way: str) -> dict[str, float]:
    harness.set_rank_environment()
    options = ["--model", given.model, "--batch", str(given.batch), "--every", str(given.every)]
    options += ["--data", str(given.data)] if given.data else []
    rate = None if way == DDP else given.rate
    with (
        Cluster(nodes=given.ranks, rate=rate) as cluster,
        rank_processes(cluster.spawn, given.ranks, "benchmarks.outer_rank", *options, limit_s=LIMIT_S) as ranks,
    ):
        return ranks.order(way, str(given.steps))[0]


if __name__ == "__main__":
    sys.exit(harness.main("outer", __doc__, measured, add_options))
