"""A2DTWP's Fig. 3: the fall of the error with time, for the baseline, the oracle and A2DTWP."""

from __future__ import annotations

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.cases import (
    ORACLE,
    SeedCase,
    WeightCase,
    batches_of,
    cases,
    differs,
    titles,
)
from benchmarks.papers.a2dtwp.training import AWP_NAME, BASELINE
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable
from softnic.measure.plot import Lines
from softnic.measure.spread import Spread, cell

_COLUMNS = (
    "model and batch | precision | error to reach (%) | seeds that reach it [d] | steps | seconds | MB of weights | "
    "error at the end (%) | mean bits at the end [.1f]"
)
_SHOWN = {"baseline": BASELINE, AWP_NAME: AWP_NAME, ORACLE: ORACLE}


def make(context: Context) -> Item:
    """Make the item, of each model with the smaller two batches, as in the figure."""
    chosen = [(model, batch) for model in context.models for batch in reversed(batches_of(context, model)[:2])]
    found = cases(context, chosen)
    title = "To an error on the test set; the oracle is, for each seed, the fixed precision that reached it first"
    return Item(
        "error against time: baseline, oracle, A2DTWP",
        [ValueTable(title, _COLUMNS, [row for each in found for row in _rows(each)])],
        [_lines(each) for each in found],
        ["The paper shows AlexNet only.", *differs(context)],
        [_finding(each) for each in found],
        titles(found),
    )


def _rows(given: WeightCase) -> list[Row]:
    rows: list[Row] = []
    for title, name in _SHOWN.items():
        steps = given.reaching(name, SeedCase.steps)
        rows.append(
            [
                given.title,
                f"{title} ({given.oracles} bits)" if name == ORACLE else title,
                given.targets.text(factor=100),
                len(steps),
                cell(steps, ".0f"),
                cell(given.reaching(name, SeedCase.seconds)),
                cell(given.reaching(name, SeedCase.sent), ".1f", 1e-6),
                given.errors(name).text(factor=100),
                given.spread(name, lambda own: own.bits[-1]).mean,
            ]
        )
    return rows


def _lines(given: WeightCase) -> Lines:
    """Return the means over the seeds of error and time at each evaluation."""
    points: dict[str, dict[float, float]] = {}
    for title, name in _SHOWN.items():
        points[title] = {}
        for index in range(len(given.seeds[0].training(name).steps)):
            seconds = Spread([each.seconds_at(name, index) for each in given.seeds])
            points[title][seconds.mean] = given.errors(name, index).mean
    at = sorted({seconds for curve in points.values() for seconds in curve})
    curves = {title: [curve.get(seconds) for seconds in at] for title, curve in points.items()}
    return Lines(given.title, "seconds", "error", at, curves)


def _finding(given: WeightCase) -> str:
    best = Spread(given.reaching(ORACLE, SeedCase.share))
    ours = given.reaching(AWP_NAME, SeedCase.share)
    reached = f"{Spread(ours).text()} times" if ours else "does not reach it"
    if ours and len(ours) < len(given.seeds):
        reached += f", with {len(ours)} of {len(given.seeds)} seeds"
    line = (
        f"{given.title}: to an error of {given.targets.text(factor=100)} % the oracle ({given.oracles} bits) takes "
        f"{best.text()} times the baseline's time, A2DTWP {reached}"
    )
    if given.plan.model == "alexnet" and given.plan.batch in paper.FIG_3:
        published = paper.FIG_3[given.plan.batch]
        line += f"; in the paper {1 - published.oracle:.2f} and {1 - published.a2dtwp:.2f} times"
    return f"{line}."
