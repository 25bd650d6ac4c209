"""`softnic demo`: the paper's digit classifier trained over NICs, with exact and with compressed gradients.

Every run starts from the same weights and draws the same batches; only the exchange of gradients differs.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from softnic.arguments import count
from softnic.cluster.cluster import Cluster
from softnic.commands import CommandError, add_json, check_writable, deliver_json
from softnic.commands.capture import recording
from softnic.commands.links import add_arguments as add_link_arguments
from softnic.commands.links import codec_name, link_of, start_cluster
from softnic.commands.links import text as as_written
from softnic.experiments import demo
from softnic.experiments.data import DataError, DataSet, load
from softnic.experiments.trainer import TrainingPlan
from softnic.measure.report import MeasurementError

NAME = "demo"
HELP = "train a digit classifier over NICs that compress its gradients, and over NICs that do not"

CODECS = ("rht:4", "bounded:10")
STEPS = {"digits": 200, "MNIST": 1500}
"""Default of --steps."""
RECORDED_STEPS = 2
"""Steps of each run in the capture. One exact step of four nodes is some 40 MB on node 0's two sides."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Takes about a minute on two cores. MNIST (train-images-idx3-ubyte.gz and the other three files) is trained\n"
        "for 1,500 steps, which takes some minutes.\n\n"
        "examples:\n"
        "  softnic demo\n"
        "  softnic demo --rate 100mbit --codec bounded:8 --codec bounded:12 --json demo.json\n"
        "  softnic demo --data mnist/ --capture demo.pcapng && softnic inspect demo.pcapng"
    )
    add_link_arguments(parser, rate="1gbit", delay="50us")
    parser.add_argument(
        "--codec",
        type=as_written(codec_name),
        action="append",
        metavar="NAME",
        dest="codecs",
        help=f"codec to compare with the exact exchange; may be repeated ({', '.join(CODECS)})",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    parser.add_argument("--steps", type=count(1), metavar="N", help="optimizer steps per run (200; MNIST: 1500)")
    parser.add_argument("--batch", type=count(1), default=25, metavar="N", help="samples per node and step (25)")
    add_json(parser)
    parser.add_argument(
        "--capture", metavar="FILE", help=f"record {RECORDED_STEPS} more steps of each run at node 0, as pcapng"
    )


def run(args: argparse.Namespace) -> int:
    codecs = [demo.EXACT, *dict.fromkeys(args.codecs or CODECS)]
    check_writable(args.json, args.capture)
    data = _load(args)
    plan = TrainingPlan(args.steps or STEPS[data.name], batch=args.batch, seed=args.seed)
    with start_cluster(args) as cluster:
        stored = args.data
        if stored is None:  # ranks would load scikit-learn for longer than they train
            stored = cluster.directory / "digits"
            data.save(stored)
        with _progress() as progress:
            runs = []
            for codec in codecs:
                runs.append(_train(cluster, codec, plan, stored, progress))
                if not progress.console.is_terminal:
                    text = f"{plan.steps} steps in {runs[-1].total_s:.1f} s, accuracy {runs[-1].accuracy:.2%}"
                    progress.console.print(f"{codec}: {text}")
            if args.capture:
                # Not the measured steps, which recording would slow down.
                recorded = TrainingPlan(RECORDED_STEPS, batch=plan.batch, seed=plan.seed)
                with recording([str(cluster.controls[0])], args.capture):
                    for codec in codecs:
                        _train(cluster, codec, recorded, stored, progress)
    if deliver_json(args.json, _as_json(data, plan, args, runs)):
        console = Console(markup=False)
        console.print()
        demo.report(data.name, plan, args.nodes, link_of(args), runs).show(console)
        if args.capture:
            print(f"{args.capture} contains {RECORDED_STEPS} steps of each run: softnic inspect {args.capture}")
    return 0


def _load(args: argparse.Namespace) -> DataSet:
    try:
        data = load(args.data)
    except DataError as error:
        raise CommandError(str(error)) from error
    samples = len(data.train_labels) // args.nodes
    if args.batch > samples:
        raise CommandError(f"--batch {args.batch}: each of {args.nodes} nodes has {samples} samples of {data.name}")
    return data


def _progress() -> Progress:
    console = Console(stderr=True, markup=False)
    return Progress(
        TextColumn("{task.description}", style="bold"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        disable=not console.is_terminal,
    )


def _train(cluster: Cluster, codec: str, plan: TrainingPlan, data: Path, progress: Progress) -> demo.DemoRun:
    """Run one training with progress. Raises CommandError if a rank fails."""
    task = progress.add_task(f"{codec:>14}", total=plan.steps, state="starting")

    def on_step(step: int, loss: float) -> None:
        progress.update(task, completed=step, state=f"loss {loss:.4f}")

    try:
        found = demo.run(cluster, codec, plan, data, on_step)
    except MeasurementError as error:
        raise CommandError(f"{codec}: {error}") from error
    progress.update(task, completed=plan.steps, state=f"accuracy {found.accuracy:.2%}")
    return found


def _as_json(data: DataSet, plan: TrainingPlan, args: argparse.Namespace, runs: list[demo.DemoRun]) -> dict[str, Any]:
    properties = ("rate", "delay", "jitter", "loss", "duplicate", "reorder", "corrupt")
    return {
        "data": data.name,
        "nodes": args.nodes,
        "mode": args.mode,
        "link": {name: getattr(args, name) for name in properties if getattr(args, name) is not None},
        "plan": asdict(plan),
        "runs": [each.as_json(runs[0]) for each in runs],
    }
