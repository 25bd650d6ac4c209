"""`softnic reproduce`: the papers' tables and figures, made on this machine, beside the published figures."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import progress as bars
from rich.console import Console

from benchmarks.papers import gradients, report
from benchmarks.papers.cache import cache_directory
from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.item import Item, ReproduceError
from benchmarks.papers.items import ITEMS, make_or_read
from softnic.cluster.nic_process import ClusterError
from softnic.commands import CommandError, add_json, check_writable, deliver_json
from softnic.commands.out import add_out, open_out
from softnic.experiments.data import DataError, load
from softnic.measure.kept import InUseError, alone
from softnic.measure.pages import PageError
from softnic.measure.report import MeasurementError, Progress, machine

NAME = "reproduce"
HELP = "reproduce the papers' tables and figures and compare them with the published ones"

ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listed = "\n".join(f"  {name:12}{', '.join(items)}" for name, items in ITEMS.items())
    parser.epilog = (
        f"items:\n{listed}\n\n"
        "Without --quick some items take many minutes. A run that was interrupted continues where it stopped: results\n"
        "are kept in --results, gradients in ~/.cache/softnic (or $XDG_CACHE_HOME), some 2 GB for all models. The\n"
        "networks need PyTorch, PNG needs matplotlib.\n\n"
        "examples:\n"
        "  softnic reproduce inceptionn table3 --model hdc\n"
        "  softnic reproduce inceptionn fig14 --data mnist/ --out figures/\n"
        "  softnic reproduce all --quick --out /tmp/figures\n"
        "  softnic reproduce all --data mnist/ --results docs/results && softnic reproduce --report"
    )
    add = parser.add_argument
    add("paper", nargs="?", choices=[*ITEMS, ALL], metavar="PAPER", help=f"{', '.join(ITEMS)}, or {ALL}")
    add("items", nargs="*", metavar="ITEM", help="table3, fig14, ... (all of the paper)")
    add("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    add_out(parser, "write CSV and PNG here")
    add_json(parser)
    models_help = "only this one; may be repeated (all four)"
    add("--model", choices=paper.MODELS, action="append", dest="models", help=models_help)
    add("--quick", action="store_true", help="a check in seconds that everything works; its figures mean nothing")
    results_help = "keep results here, one JSON file an item, and continue with those it has (in the cache)"
    add("--results", type=Path, metavar="DIR", help=results_help)
    add("--report", action="store_true", help="rebuild this checkout's documentation from docs/results, nothing else")
    add("--again", action="store_true", help="make items again that --results has")


def run(args: argparse.Namespace) -> int:
    if args.report:
        return _report()
    chosen = _chosen(args)
    pictures = open_out(args)
    check_writable(args.json)
    console, results = Console(markup=False, quiet=args.json == "-"), args.results or cache_directory() / "results"
    made: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="softnic-reproduce-") as directory,
        _alone(results),
        _bar() as bar,
    ):
        task = bar.add_task("starting", total=len(chosen))
        context = _context(args, Path(directory), lambda what: bar.update(task, description=what))
        for name, item_name in chosen:
            began = time.monotonic()
            item, now = _make(name, item_name, context, results, again=args.again)
            took_s = time.monotonic() - began
            made.append({**item.as_json(), "took_s": took_s})
            about = f"took {took_s:.0f} s" if now else f"kept in {results} (--again makes it again)"
            _deliver(item, about, args, console, pictures=pictures)
            bar.advance(task)
    deliver_json(args.json, {"machine": machine(), "items": made})
    return 0


@contextmanager
def _alone(results: Path) -> Iterator[None]:
    try:
        with alone(results):
            yield
    except InUseError as error:
        raise CommandError(str(error)) from error


def _bar() -> bars.Progress:
    columns = (
        bars.SpinnerColumn(),
        bars.MofNCompleteColumn(),
        bars.BarColumn(bar_width=20),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}", markup=False),
    )
    console = Console(stderr=True, markup=False)
    return bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _report() -> int:
    try:
        written = report.write()
    except PageError as error:
        raise CommandError(str(error)) from error
    print("\n".join(f"written: {path}" for path in written))
    return 0


def _chosen(args: argparse.Namespace) -> list[tuple[str, str]]:
    if args.paper is None:
        raise CommandError(f"name a paper: {', '.join(ITEMS)}, or {ALL}")
    if args.paper == ALL:
        if args.items:
            raise CommandError(f"`{ALL}` takes no items; name a paper: {', '.join(ITEMS)}")
        return [(name, item) for name, items in ITEMS.items() for item in items]
    unknown = [item for item in args.items if item not in ITEMS[args.paper]]
    if unknown:
        raise CommandError(f"{args.paper} has no item {unknown[0]!r}; it has {', '.join(ITEMS[args.paper])}")
    return [(args.paper, item) for item in dict.fromkeys(args.items or ITEMS[args.paper])]


def _context(args: argparse.Namespace, directory: Path, progress: Progress) -> Context:
    try:
        data = load(args.data)
    except DataError as error:
        raise CommandError(str(error)) from error
    path = args.data
    if path is None:  # Ranks load this file: importing scikit-learn in each of them takes longer.
        path = directory / "digits"
        data.save(path)
    settings = gradients.QUICK if args.quick else gradients.GradientSettings()
    models = tuple(model for model in paper.MODELS if not args.models or model in args.models)
    return Context(data, path, args.quick, models, settings, progress)


def _make(name: str, item: str, context: Context, results: Path, *, again: bool) -> tuple[Item, bool]:
    try:
        return make_or_read(name, item, context, results, again=again)
    except (ReproduceError, MeasurementError, ClusterError, DataError) as error:
        raise CommandError(f"{name} {item}: {error}") from error


def _deliver(item: Item, about: str, args: argparse.Namespace, console: Console, *, pictures: bool) -> None:
    """Show and write an item as soon as it is made: the next one may take long, or fail."""
    item.show(console)
    console.print(about, highlight=False, soft_wrap=True)
    if args.out is not None:
        files = item.write(args.out, pictures=pictures)
        console.print(f"written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
