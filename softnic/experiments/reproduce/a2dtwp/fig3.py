"""A2DTWP's Fig. 3: the fall of the error with time, for the baseline, the oracle and A2DTWP."""

from __future__ import annotations

from softnic.experiments.plot import Lines
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, WeightCase, batches_of, case, differs, titles
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable, change, percent

_COLUMNS = (
    "model and batch | precision | error to reach [.4f] | steps [d] | seconds [.2f] | MB of weights [.2f] | "
    "error at the end [.4f] | mean bits at the end [.1f]"
)


def make(context: Context) -> Item:
    """Make the item, of each model with the smaller two batches, as in the figure."""
    cases = [
        case(context, model, batch) for model in context.models for batch in reversed(batches_of(context, model)[:2])
    ]
    title = "To an error on the test set; the oracle is the fixed precision that reached it first"
    return Item(
        "error against time: baseline, oracle, A2DTWP",
        [ValueTable(title, _COLUMNS, [row for each in cases for row in _rows(each)])],
        [_lines(each) for each in cases],
        ["The paper shows AlexNet only.", *differs(context)],
        [_finding(each) for each in cases],
        titles(cases),
    )


def _shown(given: WeightCase) -> dict[str, str]:
    """Return the title and the precision of each curve."""
    best = given.oracle
    shown = {"baseline": BASELINE, AWP_NAME: AWP_NAME}
    return shown if best is None else {**shown, f"oracle ({best} bits)": best}


def _rows(given: WeightCase) -> list[Row]:
    rows: list[Row] = []
    for title, name in _shown(given).items():
        own = given.trainings[name]
        index = own.reaches(given.target)
        reached: Row = [None] * 3
        if index is not None:
            reached = [own.steps[index], given.costs.seconds(name, own, index), own.sent[index] / 1e6]
        rows.append([given.title, title, given.target, *reached, own.errors[-1], own.bits[-1]])
    return rows


def _lines(given: WeightCase) -> Lines:
    points: dict[str, dict[float, float]] = {}
    for title, name in _shown(given).items():
        own = given.trainings[name]
        points[title] = {given.costs.seconds(name, own, index): error for index, error in enumerate(own.errors)}
    at = sorted({seconds for curve in points.values() for seconds in curve})
    curves = {title: [curve.get(seconds) for seconds in at] for title, curve in points.items()}
    return Lines(given.title, "seconds", "error", at, curves)


def _finding(given: WeightCase) -> str:
    ours, best = given.share(AWP_NAME), given.share(given.oracle)
    if ours is None or best is None:
        return f"{given.title}: A2DTWP did not reach an error of {given.target:.4f} within {given.plan.steps} steps."
    line = (
        f"{given.title}: to an error of {given.target:.4f} the oracle ({given.oracle} bits) takes "
        f"{change([1 - best])} time than the baseline, A2DTWP {change([1 - ours])}"
    )
    if given.plan.model == "alexnet" and given.plan.batch in paper.FIG_3:
        published = paper.FIG_3[given.plan.batch]
        line += f"; in the paper {percent(published.oracle, 2)} and {percent(published.a2dtwp, 2)} less"
    return f"{line}."
