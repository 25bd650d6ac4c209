"""A2DTWP's Fig. 5: elapsed time after the same number of batches, relative to the baseline's, and the errors then."""

from __future__ import annotations

from softnic.experiments.plot import Bars, Lines
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, WeightCase, batches_of, case, differs, titles
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable, span

PARTS = 5
_COLUMNS = (
    "model and batch | steps [d] | time, times the baseline's [.3f] | bytes of weights [.3f] | mean bits [.1f] | "
    "error, 32 bits [.4f] | error, A2DTWP [.4f]"
)


def make(context: Context) -> Item:
    """Make the item, of each model with the largest batch, whose baseline is fastest in the paper."""
    cases = [case(context, model, batches_of(context, model)[-1]) for model in context.models]
    rows = [_row(each, index) for each in cases for index in _parts(each)]
    published = [(paper.TITLES[model], *point) for model, times in paper.FIG_5.items() for point in times.items()]
    columns = "model | epochs [d] | time, times the baseline's [.3f]"
    return Item(
        "elapsed time of whole trainings, normalised to 32 bits",
        [
            ValueTable("Here: after parts of the training", _COLUMNS, rows),
            ValueTable("Paper: section V-F, ImageNet1000 on x86", columns, published, "paper"),
        ],
        [*(_chart(each) for each in cases), _ends(cases)],
        ["The paper counts epochs of ImageNet1000; here it is parts of the training.", *differs(context)],
        [*(_finding(each) for each in cases), _errors(cases)],
        titles(cases),
    )


def _parts(given: WeightCase) -> list[int]:
    """Return the indexes of PARTS evaluations, the last one among them."""
    count = len(given.trainings[BASELINE].steps)
    return sorted({max(0, count * part // PARTS - 1) for part in range(1, PARTS + 1)})


def _time(given: WeightCase, index: int) -> float:
    own, whole = (given.costs.seconds(name, given.trainings[name], index) for name in (AWP_NAME, BASELINE))
    return own / whole


def _row(given: WeightCase, index: int) -> Row:
    own, whole = given.trainings[AWP_NAME], given.trainings[BASELINE]
    sent, errors = own.sent[index] / whole.sent[index], (whole.errors[index], own.errors[index])
    return [given.title, own.steps[index], _time(given, index), sent, own.bits[index], *errors]


def _chart(given: WeightCase) -> Lines:
    parts = _parts(given)
    steps = [given.trainings[BASELINE].steps[index] for index in parts]
    return Lines(given.title, "steps", "times the baseline's", steps, {AWP_NAME: [_time(given, at) for at in parts]})


def _ends(cases: list[WeightCase]) -> Bars:
    """Return the whole trainings beside the paper's last points."""
    models = [each.plan.model for each in cases]
    series: dict[str, list[float | None]] = {
        "paper": [list(paper.FIG_5[model].values())[-1] if model in paper.FIG_5 else None for model in models],
        "here": [_time(each, len(each.trainings[BASELINE].steps) - 1) for each in cases],
    }
    return Bars("Whole trainings", "times the baseline's", [paper.TITLES[model] for model in models], series)


def _finding(given: WeightCase) -> str:
    ours = span((_time(given, index) for index in _parts(given)), ".3f")
    published = paper.FIG_5.get(given.plan.model)
    theirs = f"; in the paper {span(published.values(), '.3f')}" if published else ""
    return f"{given.title}: {ours} times the baseline's time{theirs}."


def _errors(cases: list[WeightCase]) -> str:
    worse = [each.trainings[AWP_NAME].errors[-1] - each.trainings[BASELINE].errors[-1] for each in cases]
    return (
        f"Errors at the end, A2DTWP's less the baseline's: {span(worse, '+.4f')}; the paper has "
        f"{paper.FIG_5_WORSE[2]:+.4f} (VGG after 2 epochs) and {paper.FIG_5_WORSE[8]:+.4f} (after 8)."
    )
