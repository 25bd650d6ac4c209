"""`softnic train`: the same training by several exchange strategies, and a breakdown of their iterations."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from softnic.arguments import argument, count
from softnic.cluster.nic_process import ClusterError
from softnic.commands import CommandError, add_json, check_writable, deliver_json, named, picture
from softnic.commands.links import add_link, link_of
from softnic.experiments import numpy_models
from softnic.experiments.strategies import KINDS, StrategyName
from softnic.experiments.train import chart, strategies_compared
from softnic.measure.progress import shown
from softnic.measure.report import MeasurementError

NAME = "train"
HELP = "train by several exchange strategies, and break down the time of their iterations"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plan = strategies_compared.StrategiesPlan()
    parser.epilog = (
        "strategies, with +CODEC where gradients are compressed, as in inc+bounded:10:\n"
        + "".join(f"  {kind:<16}{what}\n" for kind, what in KINDS.items())
        + "\nexamples:\n"
        "  softnic train\n"
        "  softnic train --strategy wa --strategy inc+bounded:8 --data mnist/ --json train.json\n"
        "  softnic train --model mlp:20x1024 --batch 128 --strategy host-overlapped --strategy nic-overlapped \\\n"
        "      --strategy nic-overlapped+bfp:7 --picture train.png"
    )
    add = parser.add_argument
    add(
        "--strategy",
        type=argument(lambda given: str(StrategyName.parse(given))),
        action="append",
        dest="strategies",
        metavar="NAME",
        help=f"strategy; the first one is the reference; may be repeated ({', '.join(plan.strategies)})",
    )
    add("-n", "--nodes", type=count(1, 64), default=plan.workers, metavar="N", help="ranks that train (4)")
    model = argument(numpy_models.check)
    add("--model", type=model, default=plan.model, metavar="NAME", help=f"{numpy_models.HELP} (hdc)")
    add("--batch", type=count(1), default=plan.batch, metavar="N", help="samples per rank and iteration (25)")
    add("--steps", type=count(1), default=plan.steps, metavar="N", help="measured iterations (20)")
    add("--warm-up", type=count(0), default=plan.warm_up, metavar="N", help="iterations before those (2)")
    in_flight = "layers that overlapped strategies exchange at a time; 0: all (0)"
    add("--in-flight", type=count(0), default=plan.in_flight, metavar="N", help=in_flight)
    data = "MNIST's IDX files, or `synthetic` points (hdc: scikit-learn's digits, mlp: synthetic)"
    add("--data", type=Path, metavar="DIR", help=data)
    add("--seed", type=count(0), default=plan.seed, metavar="N", help="seed of all randomness (7)")
    add_json(parser, "all figures and traces")
    add(
        "--picture",
        type=picture(".png", ".svg", ".pdf"),
        metavar="FILE",
        help="draw bars and timelines, as PNG, SVG or PDF (needs matplotlib)",
    )
    add_link(parser, rate="1gbit", delay="50us")


def run(args: argparse.Namespace) -> int:
    if args.picture is not None:
        import matplotlib  # noqa: F401  # fails now, not after the measurement
    check_writable(args.json, args.picture)
    with shown() as progress:
        try:
            comparison = strategies_compared.run(_plan(args), progress)
        except (MeasurementError, ClusterError) as error:
            raise CommandError(str(error)) from error
    if args.picture is not None:
        with named(args.picture):
            chart.draw(comparison, args.picture)
    if not deliver_json(args.json, comparison.as_json(), indent=None):
        return 0
    console = Console(markup=False)
    comparison.report.show(console)
    console.print()
    chart.show(comparison.report.rows, console)
    return 0


def _plan(args: argparse.Namespace) -> strategies_compared.StrategiesPlan:
    data = args.data
    if data is None and args.model != "hdc":
        data = strategies_compared.SYNTHETIC
    return strategies_compared.StrategiesPlan(
        strategies=tuple(dict.fromkeys(args.strategies or strategies_compared.STRATEGIES)),
        workers=args.nodes,
        model=args.model,
        batch=args.batch,
        steps=args.steps,
        warm_up=args.warm_up,
        in_flight=args.in_flight,
        data=data,
        seed=args.seed,
        link=link_of(args),
    )
