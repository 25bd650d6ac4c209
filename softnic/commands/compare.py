"""`softnic compare`: accuracy and cost of methods of gradient exchange, by training the same models by all of them."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from softnic import units
from softnic.arguments import argument, count
from softnic.cluster.nic_process import ClusterError
from softnic.commands import CommandError, add_json, advise, check_writable, deliver_json
from softnic.commands.links import add_link, link_of
from softnic.commands.out import add_out, open_out
from softnic.experiments import methods, photos, torch_models
from softnic.experiments.compare import check, link_report, page, plan, report
from softnic.experiments.compare.check import CHECKED
from softnic.experiments.compare.results import TrainingResult, TrainingResults
from softnic.experiments.compare.run import Comparison
from softnic.experiments.compare.run import run as compare
from softnic.experiments.compare.summary import RATES
from softnic.experiments.data import DataError, load
from softnic.extras import not_installed
from softnic.measure.kept import InUseError, ResultFile, alone, checkout
from softnic.measure.pages import PageError
from softnic.measure.report import MeasurementError, Progress

NAME = "compare"
HELP = "train the same models by many methods of gradient exchange, and compare accuracy and cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "methods: names of softnic.gradients (exact, dgc:0.001, feedback:bounded:10, ...), a codec (bounded:10),\n"
        "fp16, bf16, powersgd:RANK[+CODEC], and wa[+CODEC][+adt:BITS | +awp:T,INTERVAL]: an aggregator with\n"
        "compressed gradients and weights. The short preset takes most of an hour on two cores, the full one hours.\n"
        "With --out or --results, results are kept: after an interruption the same command continues.\n\n"
        "examples:\n"
        "  softnic compare --preset quick\n"
        "  softnic compare --advise --model convnet --rate 100mbit\n"
        "  softnic compare --advise --parameters 25000000 --compute 120ms --rate 1gbit\n"
        "  softnic compare --preset full --data mnist/ --out comparison/\n"
        "  softnic compare --check 10 --model hdc --method exact --method rht:4 --rate 100mbit"
    )
    add = parser.add_argument
    add("--preset", choices=plan.PRESETS, default="short", help="length of the trainings; quick: a smoke test (short)")
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
        help=f"method; may be repeated ({', '.join(plan.SHORTER)})".replace("%", "%%"),
    )
    _add_training(parser)
    _add_instead(parser)
    add_out(parser, "directory for CSV and PNG")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="keep results here, and continue with those that it has (--out's)"
    )
    add_json(parser)
    add_link(parser)


def _add_training(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--nodes", type=count(1, 64), metavar="N", help="ranks that train (4; quick: 2)")
    add("--steps", type=count(1), metavar="N", help="steps of every training (the preset's)")
    add("--batch", type=count(1), metavar="N", help="samples per rank and step (the preset's)")
    add("--looks", type=count(1), metavar="N", help="evaluations of every training, at equal intervals (the preset's)")
    add("--data", type=Path, metavar="DIR", help="MNIST's IDX files for hdc and convnet (scikit-learn's digits)")
    add("--text", type=Path, metavar="FILE", help="text for the transformer (Python's language reference)")
    add(
        "--seed",
        type=count(0),
        action="append",
        dest="seeds",
        metavar="N",
        help="seed of weights and the order of samples; may be repeated (7; full: 7, 8, 9)",
    )


def _add_instead(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("instead of training").add_argument
    add(
        "--advise",
        action="store_true",
        help="say the method for a --model and links of --rate, by the published results or those in --results",
    )
    add("--parameters", type=count(1), metavar="N", help="with --advise, for a model without results: its parameters")
    add("--compute", type=argument(units.time_s), metavar="TIME", help="and a step's time on one worker, as in 120ms")
    add(
        "--check",
        type=count(1),
        metavar="STEPS",
        help="measure steps over emulated links of --rate, or of four rates, beside their computed time",
    )
    add("--report", action="store_true", help="generate docs/comparison.md and the advice of this checkout's results")


def run(args: argparse.Namespace) -> int:
    if args.advise:
        return advise.run(args)
    if args.report:
        return _report()
    if importlib.util.find_spec("torch") is None:
        raise CommandError(not_installed("torch"))
    pictures = open_out(args)
    check_writable(args.json)
    chosen, directory = _plan(args), args.results or args.out
    errors = Console(stderr=True, markup=False)
    with errors.status("starting") as status, _alone(directory):
        try:
            if args.check:
                return _check(args, chosen, directory, status.update)
            comparison = compare(chosen, TrainingResults(directory, chosen.link), status.update, partial(_tell, errors))
        except (MeasurementError, ClusterError) as error:
            raise CommandError(str(error)) from error
    _deliver(comparison, args, pictures=pictures)
    return int(bool(comparison.failures))


def _tell(console: Console, result: TrainingResult) -> None:
    """Print one line on a training that is done."""
    what = f"{result.model} by {result.method}, seed {result.seed}: {result.last.score:.4f}, {result.took_s:.0f} s"
    console.print(what, highlight=False, soft_wrap=True)


@contextmanager
def _alone(directory: Path | None) -> Iterator[None]:
    """Hold the directory of results for this run. Raises CommandError if another run holds it."""
    if directory is None:
        yield
        return
    try:
        with alone(directory):
            yield
    except InUseError as error:
        raise CommandError(str(error)) from error


def _report() -> int:
    root = checkout()
    if root is None:
        raise CommandError("--report needs a checkout of softnic with docs/results, which is not here")
    try:
        written = page.rebuild(root)
    except (PageError, ValueError) as error:
        raise CommandError(str(error)) from error
    Console(markup=False).print(f"written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
    return 0


def _check(args: argparse.Namespace, chosen: plan.ComparisonPlan, directory: Path | None, progress: Progress) -> int:
    rates = (args.rate,) if args.rate else RATES
    file = ResultFile(None if directory is None else directory / CHECKED)
    found = check.report(check.check(chosen, rates, args.check, progress, file), chosen, args.check)
    if deliver_json(args.json, found.as_json()):
        found.show()
    return 0


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
        seeds=tuple(dict.fromkeys(args.seeds or preset.seeds)),
        link=link_of(args),
    )


def _check_data(args: argparse.Namespace, trainings: Iterable[str]) -> None:
    """Load the data once before any rank does. Raises CommandError."""
    try:
        if any(torch_models.reads_text(name) for name in trainings) and args.text is not None:
            torch_models.read(args.text)
        if any(name in plan.LEARN_PHOTOGRAPHS for name in trainings):
            photos.find()
        if not all(torch_models.reads_text(name) or name in plan.LEARN_PHOTOGRAPHS for name in trainings):
            load(args.data)
    except DataError as error:
        raise CommandError(str(error)) from error


def _deliver(comparison: Comparison, args: argparse.Namespace, *, pictures: bool) -> None:
    console = Console(markup=False)
    files = [] if args.out is None else report.write(comparison, args.out, pictures=pictures)
    if deliver_json(args.json, report.as_json(comparison)):
        for model in comparison.plan.trainings:
            report.report(comparison, model).show(console)
            link_report.report(model, comparison.results).show(console)
        if files:
            console.print(f"written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
