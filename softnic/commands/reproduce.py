"""`softnic reproduce`: the papers' tables and figures, made here, beside what the papers give."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic.cluster import ClusterError
from softnic.commands import CommandError, add_json, check_writable, deliver_json
from softnic.commands.out import add_out, open_out
from softnic.experiments.data import DataError, DataSet, load
from softnic.experiments.report import MeasurementError, machine
from softnic.experiments.reproduce import gradients
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.item import Item, ReproduceError
from softnic.experiments.reproduce.items import ITEMS, make

NAME = "reproduce"
HELP = "make the papers' tables and figures again, and say what agrees"

ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listed = "\n".join(f"  {name:12}{', '.join(items)}" for name, items in ITEMS.items())
    parser.epilog = (
        f"items:\n{listed}\n\n"
        "Without --quick some take many minutes; what training steps give is kept in ~/.cache/softnic (or\n"
        "$XDG_CACHE_HOME), some 2 GB for all models. The networks need PyTorch, PNG needs matplotlib.\n\n"
        "examples:\n"
        "  softnic reproduce inceptionn table3 --model hdc\n"
        "  softnic reproduce inceptionn fig14 --data mnist/ --out figures/\n"
        "  softnic reproduce all --quick --out /tmp/figures"
    )
    parser.add_argument("paper", choices=[*ITEMS, ALL], metavar="PAPER", help=f"{', '.join(ITEMS)}, or {ALL}")
    parser.add_argument("items", nargs="*", metavar="ITEM", help="table3, fig14, ... (all of the paper)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    add_out(parser, "write CSV and PNG here")
    add_json(parser)
    parser.add_argument(
        "--model",
        choices=paper.MODELS,
        action="append",
        dest="models",
        help="only this one; may be repeated (all four)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny and fast, to see that it works; its figures mean nothing"
    )


def run(args: argparse.Namespace) -> int:
    chosen = _chosen(args)
    pictures = open_out(args)
    check_writable(args.json)
    console, errors = Console(markup=False), Console(stderr=True, markup=False)
    made: list[tuple[Item, float]] = []
    with tempfile.TemporaryDirectory(prefix="softnic-reproduce-") as directory, errors.status("starting") as status:
        context = _context(args, Path(directory), lambda what: status.update(what))
        for name, item in chosen:
            began = time.monotonic()
            made.append((_make(name, item, context), time.monotonic() - began))
            _deliver(*made[-1], args, console, pictures=pictures)
    deliver_json(args.json, {"machine": machine(), "items": [_as_json(*each) for each in made]})
    return 0


def _chosen(args: argparse.Namespace) -> list[tuple[str, str]]:
    if args.paper == ALL:
        if args.items:
            raise CommandError(f"`{ALL}` takes no items; name a paper: {', '.join(ITEMS)}")
        return [(name, item) for name, items in ITEMS.items() for item in items]
    unknown = [item for item in args.items if item not in ITEMS[args.paper]]
    if unknown:
        raise CommandError(f"{args.paper} has no item {unknown[0]!r}; it has {', '.join(ITEMS[args.paper])}")
    return [(args.paper, item) for item in dict.fromkeys(args.items or ITEMS[args.paper])]


def _context(args: argparse.Namespace, directory: Path, progress: Any) -> Context:
    try:
        data: DataSet = load(args.data)
    except DataError as error:
        raise CommandError(str(error)) from error
    path = args.data
    if path is None:  # loading scikit-learn takes longer than a rank should
        path = directory / "digits"
        data.save(path)
    settings = gradients.QUICK if args.quick else gradients.Settings()
    models = tuple(model for model in paper.MODELS if not args.models or model in args.models)
    return Context(data, path, args.quick, models, settings, progress)


def _make(name: str, item: str, context: Context) -> Item:
    try:
        return make(name, item, context)
    except (ReproduceError, MeasurementError, ClusterError, DataError) as error:
        raise CommandError(f"{name} {item}: {error}") from error


def _deliver(item: Item, seconds: float, args: argparse.Namespace, console: Console, *, pictures: bool) -> None:
    """Shows and writes an item as soon as it is made: the next may take long, or fail."""
    if args.json != "-":
        item.show(console)
        console.print(f"took {seconds:.0f} s", highlight=False)
    if args.out is not None:
        files = item.write(args.out, pictures=pictures)
        if args.json != "-":
            console.print(f"written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)


def _as_json(item: Item, seconds: float) -> dict[str, Any]:
    return {**item.as_json(), "took_s": seconds}
