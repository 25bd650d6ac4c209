"""A2DTWP's Fig. 5: elapsed time after the same number of batches, relative to the baseline's, and the errors then."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.cases import WeightCase, batches_of, cases, differs, titles
from benchmarks.papers.a2dtwp.training import AWP_NAME, BASELINE
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, span
from softnic.measure.plot import Bars, Lines
from softnic.measure.spread import Spread

PARTS = 5
_COLUMNS = (
    "model and batch | steps [d] | time, times the baseline's [.3f] | ± [.3f] | bytes of weights | mean bits [.1f] | "
    "error, 32 bits (%) | error, A2DTWP (%)"
)


def make(context: Context) -> Item:
    """Make the item, of each model with the largest batch, whose baseline is fastest in the paper."""
    found = cases(context, [(model, batches_of(context, model)[-1]) for model in context.models])
    rows = [_row(each, index) for each in found for index in _parts(each)]
    published = [(paper.TITLES[model], *point) for model, times in paper.FIG_5.items() for point in times.items()]
    columns = "model | epochs [d] | time, times the baseline's [.3f]"
    return Item(
        "elapsed time of whole trainings, normalised to 32 bits",
        [
            ValueTable("Here: after parts of the training", _COLUMNS, rows),
            ValueTable("Paper: section V-F, ImageNet1000 on x86", columns, published, "paper"),
        ],
        [*(_chart(each) for each in found), _ends(found)],
        ["The paper counts epochs of ImageNet1000; here it is parts of the training.", *differs(context)],
        [*(_finding(each) for each in found), _errors(found)],
        titles(found),
    )


def _evaluated(given: WeightCase) -> list[int]:
    """Return the steps of the evaluations, which all trainings have in common."""
    return given.seeds[0].training(BASELINE).steps


def _parts(given: WeightCase) -> list[int]:
    """Return the indexes of PARTS evaluations, the last one among them."""
    count = len(_evaluated(given))
    return sorted({max(0, count * part // PARTS - 1) for part in range(1, PARTS + 1)})


def _time(given: WeightCase, index: int) -> Spread:
    return Spread([each.seconds_at(AWP_NAME, index) / each.seconds_at(BASELINE, index) for each in given.seeds])


def _row(given: WeightCase, index: int) -> Row:
    sent = [each.training(AWP_NAME).sent[index] / each.training(BASELINE).sent[index] for each in given.seeds]
    time = _time(given, index)
    return [
        given.title,
        _evaluated(given)[index],
        time.mean,
        time.deviation,
        Spread(sent).text(".3f"),
        given.spread(AWP_NAME, lambda own: own.bits[index]).mean,
        *(given.errors(name, index).text(factor=100) for name in (BASELINE, AWP_NAME)),
    ]


def _chart(given: WeightCase) -> Lines:
    parts = _parts(given)
    steps = [_evaluated(given)[index] for index in parts]
    return Lines(
        given.title, "steps", "times the baseline's", steps, {AWP_NAME: [_time(given, at).mean for at in parts]}
    )


def _ends(found: Sequence[WeightCase]) -> Bars:
    """Return the whole trainings beside the paper's last points."""
    models = [each.plan.model for each in found]
    series: dict[str, list[float | None]] = {
        "paper": [list(paper.FIG_5[model].values())[-1] if model in paper.FIG_5 else None for model in models],
        "here": [_time(each, -1).mean for each in found],
    }
    return Bars("Whole trainings", "times the baseline's", [paper.TITLES[model] for model in models], series)


def _finding(given: WeightCase) -> str:
    ours = span((_time(given, index).mean for index in _parts(given)), ".3f")
    published = paper.FIG_5.get(given.plan.model)
    theirs = f"; in the paper {span(published.values(), '.3f')}" if published else ""
    return f"{given.title}: {ours} times the baseline's time{theirs}."


def _errors(found: Sequence[WeightCase]) -> str:
    worse = [f"{each.title} {each.errors(AWP_NAME).less(each.errors(BASELINE)).text('+.2f', 100)}" for each in found]
    return (
        f"Errors at the end, A2DTWP's less the baseline's, in points: {'; '.join(worse)}; the paper has "
        f"{100 * paper.FIG_5_WORSE[2]:+.2f} (VGG after 2 epochs) and {100 * paper.FIG_5_WORSE[8]:+.2f} (after 8)."
    )
