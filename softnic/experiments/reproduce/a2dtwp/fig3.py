"""A2DTWP's Fig. 3: how the error falls with time, for the baseline, the oracle and A2DTWP."""

from __future__ import annotations

from softnic.experiments.plot import Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, Case, batches_of, case, differs
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import Item, change, percent


def make(context: Context) -> Item:
    cases = [case(context, model, batch) for model in context.models for batch in reversed(_batches(context, model))]
    rows = [row for each in cases for row in _rows(each)]
    return Item(
        "a2dtwp",
        "fig3",
        "error against time: baseline, oracle, A2DTWP",
        [
            ValueTable(
                "On the test set; the oracle is the fixed precision that came to the target first", _COLUMNS, rows
            )
        ],
        [_lines(each) for each in cases],
        ["The paper shows AlexNet only.", *differs(context)],
        [_finding(each) for each in cases],
        {"cases": [each.title for each in cases], "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("model and batch"),
    ValueColumn("precision"),
    ValueColumn("steps", "d"),
    ValueColumn("seconds", ".2f"),
    ValueColumn("MB of weights", ".2f"),
    ValueColumn("mean bits", ".1f"),
    ValueColumn("error", ".4f"),
]


def _batches(context: Context, model: str) -> tuple[int, ...]:
    """The smaller two, as the figure has it."""
    return batches_of(context, model)[:2]


def _shown(given: Case) -> dict[str, str]:
    """Title and name of each curve."""
    best = given.oracle
    shown = {"baseline": BASELINE, AWP_NAME: AWP_NAME}
    return shown if best is None else {**shown, f"oracle ({best} bits)": best}


def _rows(given: Case) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for title, name in _shown(given).items():
        training = given.trainings[name]
        for index, step in enumerate(training.looks):
            seconds = given.costs.seconds(name, training, index)
            sent, bits = training.sent[index] / 1e6, training.bits[index]
            rows.append([given.title, title, step, seconds, sent, bits, training.errors[index]])
    return rows


def _lines(given: Case) -> Lines:
    points = {
        title: {
            given.costs.seconds(name, given.trainings[name], index): error
            for index, error in enumerate(given.trainings[name].errors)
        }
        for title, name in _shown(given).items()
    }
    at = sorted({seconds for curve in points.values() for seconds in curve})
    return Lines(
        given.title,
        "seconds",
        "error",
        at,
        {title: [curve.get(seconds) for seconds in at] for title, curve in points.items()},
    )


def _finding(given: Case) -> str:
    """The times to the same error, as shares of the baseline's."""
    ours, best = given.share(AWP_NAME), given.share(given.oracle)
    if ours is None or best is None:
        return f"{given.title}: A2DTWP did not come to an error of {given.target:.4f} within {given.plan.steps} steps."
    line = (
        f"{given.title}: to an error of {given.target:.4f} the oracle ({given.oracle} bits) takes "
        f"{change([1 - best])} time than the baseline, A2DTWP {change([1 - ours])}"
    )
    if given.plan.model == "alexnet" and given.plan.batch in paper.FIG_3:
        published = paper.FIG_3[given.plan.batch]
        line += f"; in the paper {percent(published.oracle, 2)} and {percent(published.a2dtwp, 2)} less"
    return f"{line}."
