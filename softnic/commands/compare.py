"""`softnic compare`: accuracy and cost of methods of gradient exchange, by training the same models by all of them."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from softnic.cluster.nic_process import ClusterError
from softnic.commands import CommandError, add_json, argument, check_writable, count, deliver_json
from softnic.commands.links import add_link, link_of
from softnic.commands.out import add_out, open_out
from softnic.experiments import methods, torch_models
from softnic.experiments.compare import plan, report
from softnic.experiments.compare.results import TrainingResults
from softnic.experiments.compare.run import Comparison
from softnic.experiments.compare.run import run as compare
from softnic.experiments.data import DataError, load
from softnic.experiments.report import MeasurementError
from softnic.extras import not_installed

NAME = "compare"
HELP = "train the same models by many methods of gradient exchange, and compare accuracy and cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "methods: names of softnic.gradients (exact, dgc:0.001, feedback:bounded:10, ...), a codec (bounded:10),\n"
        "fp16, powersgd:RANK, and wa[+CODEC][+adt:BITS | +awp:T,INTERVAL]: an aggregator with compressed gradients\n"
        "and weights. The full preset takes most of an hour on two cores. With --out, results are kept: after an\n"
        "interruption the same command continues.\n\n"
        "examples:\n"
        "  softnic compare --preset quick\n"
        "  softnic compare --data mnist/ --out comparison/\n"
        "  softnic compare --model convnet --method exact --method dgc --method bounded:8 --rate 100mbit"
    )
    add = parser.add_argument
    add("--preset", choices=plan.PRESETS, default="full", help="length of the trainings; quick is a smoke test (full)")
    add(
        "--model",
        choices=torch_models.NAMES,
        action="append",
        dest="models",
        help="model; may be repeated (all four; quick: convnet, transformer)",
    )
    add(
        "--method",
        type=argument(methods.check),
        action="append",
        dest="methods",
        metavar="NAME",
        help=f"method; may be repeated ({', '.join(plan.METHODS)})".replace("%", "%%"),
    )
    add("-n", "--nodes", type=count(1, 64), metavar="N", help="ranks that train (4; quick: 2)")
    add("--steps", type=count(1), metavar="N", help="steps of every training (the preset's)")
    add("--batch", type=count(1), metavar="N", help="samples per rank and step (the preset's)")
    add("--looks", type=count(1), metavar="N", help="evaluations of every training, at equal intervals (5; quick: 2)")
    add("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    add("--text", type=Path, metavar="FILE", help="text for the transformer (Python's language reference)")
    add("--seed", type=count(0), default=7, metavar="N", help="seed of weights and the order of samples (7)")
    add_out(parser, "directory for results, CSV and PNG")
    add_json(parser)
    add_link(parser, rate="1gbit", delay="50us")


def run(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("torch") is None:
        raise CommandError(not_installed("torch"))
    pictures = open_out(args)
    check_writable(args.json)
    chosen = _plan(args)
    with Console(stderr=True, markup=False).status("starting") as status:
        try:
            comparison = compare(chosen, TrainingResults(args.out, chosen.link), status.update)
        except (MeasurementError, ClusterError) as error:
            raise CommandError(str(error)) from error
    _deliver(comparison, args, pictures=pictures)
    return int(bool(comparison.failures))


def _plan(args: argparse.Namespace) -> plan.ComparisonPlan:
    preset = plan.PRESETS[args.preset]
    trainings = {}
    for name in dict.fromkeys(args.models or preset.models):
        given = preset.trainings[name]
        chosen = {key: getattr(args, key) for key in ("steps", "batch", "looks") if getattr(args, key)}
        trainings[name] = replace(given, **chosen)
    _check_data(args, trainings)
    return plan.ComparisonPlan(
        methods=tuple(dict.fromkeys(args.methods or preset.methods)),
        trainings=trainings,
        workers=args.nodes or preset.workers,
        images=None if args.data is None else str(args.data.resolve()),
        text=None if args.text is None else str(args.text.resolve()),
        seed=args.seed,
        link=link_of(args),
    )


def _check_data(args: argparse.Namespace, trainings: Iterable[str]) -> None:
    """Load the data once before any rank does. Raises CommandError."""
    try:
        if any(torch_models.reads_text(name) for name in trainings) and args.text is not None:
            torch_models.read(args.text)
        if not all(torch_models.reads_text(name) for name in trainings):
            load(args.data)
    except DataError as error:
        raise CommandError(str(error)) from error


def _deliver(comparison: Comparison, args: argparse.Namespace, *, pictures: bool) -> None:
    console = Console(markup=False)
    files = [] if args.out is None else report.write(comparison, args.out, pictures=pictures)
    if deliver_json(args.json, report.as_json(comparison)):
        for model in comparison.plan.trainings:
            report.report(comparison, model).show(console)
        if files:
            console.print(f"written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
