"""`softnic compare --advise`: which method to take for a model and a link."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic.commands import CommandError, check_writable, deliver_json
from softnic.experiments.compare import advice, page
from softnic.experiments.compare.advice import Advice, AdviceError, ComparedModel
from softnic.experiments.compare.summary import RATES
from softnic.units import rate_bps, text_time


def run(args: argparse.Namespace) -> int:
    """Print the advice for every chosen model and link. Returns the exit code."""
    check_writable(args.json)
    directory = args.results or args.out
    try:
        _check(args)
        results = _own(directory) if directory else advice.load(advice.PUBLISHED)
        chosen, notes = _models(args, results)
        rates = (args.rate,) if args.rate else RATES
        given = [advice.advise(model, rate_bps(rate)) for model in chosen for rate in rates]
    except (AdviceError, ValueError) as error:
        raise CommandError(str(error)) from error
    except (ArithmeticError, LookupError) as error:
        raise CommandError(f"no advice follows from these results: {error}") from error
    if deliver_json(args.json, [_as_json(each) for each in given]):
        console = Console(markup=False)
        for line in [*notes, *(line for each in given for line in advice.text(each))]:
            console.print(line, highlight=False, soft_wrap=True)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raise AdviceError for arguments that do not go together."""
    if args.parameters is None and args.compute is not None:
        raise AdviceError("--compute needs --parameters")
    if args.parameters is not None and args.models:
        raise AdviceError("--parameters is for a model without results: leave out --model")


def _own(directory: Path) -> list[ComparedModel]:
    """Return the models that a directory has results of. Raises OSError, ValueError."""
    return list(map(advice.compared, page.summarised(directory)))


def _models(args: argparse.Namespace, results: list[ComparedModel]) -> tuple[list[ComparedModel], list[str]]:
    """Return the models to advise from, and what to say of them. Raises AdviceError."""
    if args.parameters is None:
        return [advice.find(results, name) for name in args.models or [each.model for each in results]], []
    found = advice.nearest(results, args.parameters, args.compute)
    computed = "" if args.compute is None else f" and {text_time(args.compute)} of computation per step"
    note = (
        f"{args.parameters:,} parameters{computed}: the most similar model with results is {found.model} "
        f"({found.parameters:,} parameters, {text_time(found.compute_s)}). Its figures are scaled to this size; that "
        "as many steps are needed is an assumption."
    )
    return [advice.scaled(found, args.parameters, args.compute)], [note]


def _as_json(given: Advice) -> dict[str, Any]:
    return {
        "model": given.model.model,
        "rate_bps": given.rate_bps,
        "take": given.best.method.method,
        "link_share_of_exact_step": given.link_share,
        "choices": [
            {
                "method": each.method.method,
                "seconds": each.seconds,
                "seeds": given.model.seeds,
                "ratio": each.method.ratio,
                "step_s": each.method.step_seconds(given.rate_bps),
            }
            for each in given.choices
        ],
        "lines": advice.text(given),
    }
