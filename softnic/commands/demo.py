"""`softnic demo`: the paper's digit classifier trained by gradient exchange over NICs, exact and compressed.

Every run starts from the same weights and draws the same batches; only what happens to gradients on their way
differs. What is told of a run comes from three places: accuracy and time inside the exchanges from the ranks,
bytes from the counters of the NICs, before and after each run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import deque
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from softnic.cluster import Cluster
from softnic.commands import CommandError, add_json, check_writable, count, deliver_json
from softnic.commands.capture import recording
from softnic.commands.links import add_arguments as add_link_arguments
from softnic.commands.links import codec_name, link_of, start_cluster, text
from softnic.commands.ranks import DEFAULTS, JobFailed, Ranks
from softnic.experiments.data import DataError, DataSet, load
from softnic.experiments.demo import RunReport, print_report
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.trainer import Outcome, TrainingPlan

NAME = "demo"
HELP = "train a digit classifier over NICs that compress its gradients, and over NICs that do not"

CODECS = ("inceptionn:10", "bounded:10")
EXACT = "exact"
STEPS = {"digits": 200, "MNIST": 1500}
"""Where --steps says nothing."""
RECORDED_STEPS = 2
"""Of each run, for --capture. One exact step of four nodes is some 40 MB on node 0's two sides."""
KEPT_LINES = 15
"""Of a rank's stderr, to show if it fails."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Takes about a minute on two cores. MNIST's files (train-images-idx3-ubyte.gz and the other three) are\n"
        "trained on for 1,500 steps, which takes some minutes.\n\n"
        "examples:\n"
        "  softnic demo\n"
        "  softnic demo --rate 100mbit --codec bounded:8 --codec bounded:12 --json demo.json\n"
        "  softnic demo --data mnist/ --capture demo.pcapng && softnic inspect demo.pcapng"
    )
    add_link_arguments(parser, rate="1gbit", delay="50us")
    parser.add_argument(
        "--codec",
        type=text(codec_name),
        action="append",
        metavar="NAME",
        dest="codecs",
        help=f"compare this one with the exact exchange; may be repeated ({', '.join(CODECS)})",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    parser.add_argument("--steps", type=count(1), metavar="N", help="optimizer steps a run (200; MNIST: 1500)")
    parser.add_argument("--batch", type=count(1), default=25, metavar="N", help="samples a node and step (25)")
    add_json(parser)
    parser.add_argument(
        "--capture", metavar="FILE", help=f"record {RECORDED_STEPS} more steps of each run at node 0, as pcapng"
    )


@dataclass(frozen=True)
class Job:
    """What all runs have in common."""

    cluster: Cluster
    plan: TrainingPlan
    data: Path
    progress: Progress


def run(args: argparse.Namespace) -> int:
    codecs = list(dict.fromkeys(args.codecs or CODECS))
    check_writable(args.json, args.capture)
    data = _load(args)
    plan = TrainingPlan(args.steps or STEPS[data.name], batch=args.batch, seed=args.seed)
    console = Console(stderr=True, markup=False)
    with start_cluster(args) as cluster:
        stored = args.data
        if stored is None:  # loading scikit-learn takes longer than a rank should
            stored = cluster.directory / "digits"
            data.save(stored)
        with _progress(console) as progress:
            job = Job(cluster, plan, stored, progress)
            reports = [_train(job, codec) for codec in [EXACT, *codecs]]
            if args.capture:
                _record(job, [EXACT, *codecs], args.capture)
    link = link_of(args)
    if deliver_json(args.json, _as_json(data, plan, args, reports)):
        print_report(data.name, plan, args.nodes, link, reports)
        if args.capture:
            print(f"{args.capture} holds {RECORDED_STEPS} steps of each run: softnic inspect {args.capture}")
    return 0


def _load(args: argparse.Namespace) -> DataSet:
    try:
        data = load(args.data)
    except DataError as error:
        raise CommandError(str(error)) from error
    least = len(data.train_labels) // args.nodes
    if args.batch > least:
        raise CommandError(f"--batch {args.batch}: each of {args.nodes} nodes has {least} samples of {data.name}")
    return data


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", style="bold"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        disable=not console.is_terminal,
    )


def _train(job: Job, codec: str) -> RunReport:
    """One run with progress. Raises CommandError where a rank fails."""
    task = job.progress.add_task(f"{codec:>14}", total=job.plan.steps, state="starting")
    before = NicTraffic.of(job.cluster)
    outcomes = _run_ranks(job, codec, job.plan.steps, task)
    traffic = NicTraffic.of(job.cluster) - before
    if len({outcome.weights for outcome in outcomes}) != 1:
        raise CommandError(f"{codec}: the ranks ended with different weights; this is a bug")
    report = RunReport.of(codec, outcomes, traffic)
    job.progress.update(task, completed=job.plan.steps, state=f"accuracy {report.accuracy:.2%}")
    if not job.progress.console.is_terminal:
        job.progress.console.print(
            f"{codec}: {job.plan.steps} steps in {report.total_s:.1f} s, accuracy {report.accuracy:.2%}"
        )
    return report


def _run_ranks(job: Job, codec: str, steps: int, task: TaskID | None) -> list[Outcome]:
    """The outcome of every rank, in rank order."""
    strategy = "inc" if codec == EXACT else f"inc+{codec}"
    argv = [
        *(
            sys.executable,
            "-P",
            "-m",
            "softnic.experiments.train",
            "--events",
            "--strategy",
            strategy,
            "--data",
            str(job.data),
        ),
        *("--steps", str(steps), "--batch", str(job.plan.batch), "--seed", str(job.plan.seed)),
    ]
    outcomes: dict[int, Outcome] = {}
    complaints = [deque[str](maxlen=KEPT_LINES) for _ in range(job.cluster.nodes)]
    with closing(Ranks(job.cluster, argv, {**DEFAULTS, **os.environ})) as ranks:
        try:
            for line in ranks.lines():
                if line.is_error:
                    complaints[line.rank].append(line.text.decode(errors="replace"))
                    continue
                event = json.loads(line.text)
                if "weights" in event:
                    outcomes[line.rank] = Outcome(**event)
                elif task is not None:
                    job.progress.update(task, completed=event["step"], state=f"loss {event['loss']:.4f}")
        except JobFailed as failure:
            said = "\n".join(complaints[failure.rank]) if failure.rank is not None else ""
            raise CommandError(f"{codec}: {failure}" + (f"\n{said}" if said else "")) from failure
    if len(outcomes) != job.cluster.nodes:
        raise CommandError(f"{codec}: only {len(outcomes)} of {job.cluster.nodes} ranks told how it went")
    return [outcomes[rank] for rank in sorted(outcomes)]


def _record(job: Job, codecs: list[str], file: str) -> None:
    """A few steps of each run, apart from the measured ones, so that recording costs them nothing."""
    with recording([str(job.cluster.controls[0])], file):
        for codec in codecs:
            task = job.progress.add_task(f"{codec:>14}", total=RECORDED_STEPS, state="recording")
            _run_ranks(job, codec, RECORDED_STEPS, None)
            job.progress.update(task, completed=RECORDED_STEPS, state="recorded")


def _as_json(data: DataSet, plan: TrainingPlan, args: argparse.Namespace, reports: list[RunReport]) -> dict[str, Any]:
    link = {
        name: getattr(args, name) for name in ("rate", "delay", "jitter", "loss", "duplicate", "reorder", "corrupt")
    }
    return {
        "data": data.name,
        "nodes": args.nodes,
        "mode": args.mode,
        "link": {name: value for name, value in link.items() if value is not None},
        "plan": asdict(plan),
        "runs": [report.as_json(reports[0]) for report in reports],
    }
