"""INCEPTIONN's Fig. 14b, of more than HDC: the accuracy that each bound of the codec leaves after the same steps."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.inceptionn.lossy import (
    EXACT,
    TITLES,
    Loss,
    LossyTraining,
    differs,
    prepare,
    trainings,
)
from benchmarks.papers.item import Item, Row, ValueTable, percent
from softnic.measure.plot import Bars
from softnic.measure.spread import Spread

MODELS = ("hdc", "alexnet", "resnet50", "vgg16")
LOSSES: Mapping[str, Loss] = {
    "exact": EXACT,
    **{f"INC(2^-{k})": Loss(gradients=f"inceptionn:{k}") for k in paper.BOUNDS},
}
_COLUMNS = "model | exchange | accuracy (%) | points [+.2f] | ± [.2f] | ratio over all hops [.1f]"
Found = Mapping[str, Mapping[str, list[LossyTraining]]]
"""By model, then by exchange: one for each seed."""


def make(context: Context) -> Item:
    models = context.only(MODELS)
    prepare(context, {model: list(LOSSES.values()) for model in models})
    found = {model: {case: trainings(context, model, loss) for case, loss in LOSSES.items()} for model in models}
    rows = [row for model in models for row in _rows(model, found)]
    return Item(
        "accuracy by the codec's bound",
        [ValueTable("After the same steps; paper: Fig. 14 (b)", _COLUMNS, rows)],
        [
            Bars("Accuracy", "", list(LOSSES), {TITLES[model]: [_accuracy(of[case]).mean for case in LOSSES]})
            for model, of in found.items()
        ],
        [
            "Each link of the ring rounds; the paper's accuracies are of whole trainings.",
            *differs(context, models),
        ],
        [_finding(model, found) for model in models],
        {"models": models},
    )


def _accuracy(of: list[LossyTraining]) -> Spread:
    return Spread([each.accuracy for each in of])


def _points(model: str, found: Found, case: str) -> Spread:
    """Return the points more than the exact training of the same seed."""
    more = _accuracy(found[model][case]).less(_accuracy(found[model]["exact"]))
    return Spread([100 * value for value in more.values])


def _rows(model: str, found: Found) -> list[Row]:
    rows: list[Row] = []
    for case, of in found[model].items():
        more = _points(model, found, case)
        ratio = sum(each.ratio for each in of) / len(of)
        rows.append([TITLES[model], case, _accuracy(of).text(factor=100), more.mean, more.deviation, ratio])
    return rows


def _finding(model: str, found: Found) -> str:
    changed = ", ".join(f"{_points(model, found, f'INC(2^-{k})').text('+.2f')} (2^-{k})" for k in paper.BOUNDS)
    return (
        f"{TITLES[model]}, points more than exact after the same steps: {changed}; the paper loses less than "
        f"{percent(paper.FIG_14_MOST_LOST, 0)} with 2^-6."
    )
