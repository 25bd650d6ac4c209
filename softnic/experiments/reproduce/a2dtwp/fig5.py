"""A2DTWP's Fig. 5: elapsed time after the same number of batches, times the baseline's, and the errors then."""

from __future__ import annotations

from softnic.experiments.plot import Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, Case, batches_of, case, differs
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import Item, span

PARTS = 5


def make(context: Context) -> Item:
    cases = [case(context, model, _batch(context, model)) for model in context.models]
    rows = [row for each in cases for row in _rows(each)]
    charts = [_chart(each) for each in cases]
    return Item(
        "a2dtwp",
        "fig5",
        "elapsed time of whole trainings, normalised to 32 bits",
        [
            ValueTable("Here: after parts of the training", _COLUMNS, rows),
            ValueTable("Paper: section V-F, ImageNet1000 on x86", _PAPER_COLUMNS, _published(), "paper"),
        ],
        charts,
        ["The paper counts epochs of ImageNet1000; here it is parts of the training.", *differs(context)],
        [*(_finding(each) for each in cases), _errors(cases)],
        {"cases": [each.title for each in cases], "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("model and batch"),
    ValueColumn("steps", "d"),
    ValueColumn("time, times the baseline's", ".3f"),
    ValueColumn("bytes of weights", ".3f"),
    ValueColumn("mean bits", ".1f"),
    ValueColumn("error, 32 bits", ".4f"),
    ValueColumn("error, A2DTWP", ".4f"),
]
_PAPER_COLUMNS = [ValueColumn("model"), ValueColumn("epochs", "d"), ValueColumn("time, times the baseline's", ".3f")]


def _batch(context: Context, model: str) -> int:
    """The one whose baseline is fastest in the paper."""
    return batches_of(context, model)[-1]


def _looks(given: Case) -> list[int]:
    """Indexes of PARTS looks, the last one among them."""
    count = len(given.trainings[BASELINE].looks)
    return sorted({max(0, count * part // PARTS - 1) for part in range(1, PARTS + 1)})


def _time(given: Case, index: int) -> float:
    own, whole = (given.costs.seconds(name, given.trainings[name], index) for name in (AWP_NAME, BASELINE))
    return own / whole


def _rows(given: Case) -> list[list[Value]]:
    own, whole = given.trainings[AWP_NAME], given.trainings[BASELINE]
    return [
        [
            given.title,
            own.looks[index],
            _time(given, index),
            own.sent[index] / whole.sent[index],
            own.bits[index],
            whole.errors[index],
            own.errors[index],
        ]
        for index in _looks(given)
    ]


def _published() -> list[list[Value]]:
    return [[paper.TITLES[model], at, time] for model, times in paper.FIG_5.items() for at, time in times.items()]


def _chart(given: Case) -> Lines:
    at = _looks(given)
    steps = [float(given.trainings[BASELINE].looks[index]) for index in at]
    return Lines(given.title, "steps", "times the baseline's", steps, {AWP_NAME: [_time(given, index) for index in at]})


def _finding(given: Case) -> str:
    ours = span((_time(given, index) for index in _looks(given)), "{:.3f}".format)
    published = paper.FIG_5.get(given.plan.model)
    theirs = f"; in the paper {span(published.values(), '{:.3f}'.format)}" if published else ""
    return f"{given.title}: {ours} times the baseline's time{theirs}."


def _errors(cases: list[Case]) -> str:
    worse = [each.trainings[AWP_NAME].errors[-1] - each.trainings[BASELINE].errors[-1] for each in cases]
    return (
        f"Errors at the end, A2DTWP's less the baseline's: {span(worse, '{:+.4f}'.format)}; the paper has "
        f"{paper.FIG_5_WORSE[2]:+.4f} (VGG after 2 epochs) and {paper.FIG_5_WORSE[8]:+.4f} (after 8)."
    )
