"""INCEPTIONN's Fig. 4: accuracy when gradients or weights are truncated, and what of it contradicts A2DTWP.

The paper truncates either, and finds that weights bear it far less, since their loss accumulates. A2DTWP rests on
weights that travel with as few as eight bits. Both are made here, and the difference between them: whether the
truncated weights are all there is, or an aggregator keeps them whole and truncates only what it sends.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn.lossy import (
    EXACT,
    TITLES,
    Loss,
    accuracy,
    differs,
    prepare,
)
from benchmarks.papers.item import Item, Row, ValueTable
from softnic.measure.plot import Bars
from softnic.measure.spread import Spread

MODELS = ("hdc", "alexnet")
"""Those of the figure."""
CODECS: Mapping[str, str] = {"22b-T": "truncate:10", "24b-T": "truncate:8"}
SHOWN: Mapping[str, tuple[str, ...]] = {"hdc": ("22b-T", "24b-T"), "alexnet": ("24b-T",)}
"""The cases of each model."""
GRADIENTS, SENT, KEPT = "gradients", "weights, as sent", "weights, as kept"
COLUMNS = f"model | dropped | {GRADIENTS} | {SENT} | {KEPT} | {GRADIENTS}: points [+.2f] | {SENT}: points [+.2f] | " + (
    f"{KEPT}: points [+.2f]"
)

_FEW_POINTS = 2.0
"""Of accuracy: A2DTWP's own errors are up to 1.93 points larger."""

Found = Mapping[str, Mapping[str, Mapping[str, Spread]]]
"""Accuracies by model, then by what is truncated, then by case."""


def losses(codec: str) -> dict[str, Loss]:
    """Return the ways to truncate with a codec."""
    return {GRADIENTS: Loss(gradients=codec), SENT: Loss(weights=codec), KEPT: Loss(weights=codec, kept=True)}


def make(context: Context) -> Item:
    models = context.only(MODELS)
    prepare(context, {model: [EXACT, *_shown(model)] for model in models})
    base = {model: accuracy(context, model, EXACT) for model in models}
    found = {model: _truncated(context, model) for model in models}
    rows: list[Row] = []
    for model in models:
        rows.append([TITLES[model], "nothing", *[base[model].text(factor=100)] * 3, 0.0, 0.0, 0.0])
        for case in SHOWN[model]:
            spreads = [found[model][what][case] for what in (GRADIENTS, SENT, KEPT)]
            lost = [100 * spread.less(base[model]).mean for spread in spreads]
            rows.append([TITLES[model], case, *(spread.text(factor=100) for spread in spreads), *lost])
    return Item(
        "accuracy with truncated gradients or weights",
        [ValueTable("Accuracy on the test set in %; paper: Fig. 4", COLUMNS, rows)],
        [_chart(model, base[model], found[model]) for model in models],
        [
            "xb-T drops the x lowest bits of float32. Gradients are truncated on every hop of a ring, weights whole, "
            "biases included. As sent: the aggregator keeps its weights in float32, as A2DTWP's does; as kept: the "
            "next step starts from the truncated ones.",
            "The paper shows the figure as a chart without numbers, and does not say which of the two it did with "
            "weights; its explanation, that the loss accumulates, is of the second.",
            *differs(context, models),
        ],
        [_finding(model, base[model], found[model]) for model in models] + [_premise(found, base)],
        {"models": models},
    )


def _shown(model: str) -> list[Loss]:
    return [loss for case in SHOWN[model] for loss in losses(CODECS[case]).values()]


def _truncated(context: Context, model: str) -> dict[str, dict[str, Spread]]:
    found: dict[str, dict[str, Spread]] = {GRADIENTS: {}, SENT: {}, KEPT: {}}
    for case in SHOWN[model]:
        for what, loss in losses(CODECS[case]).items():
            found[what][case] = accuracy(context, model, loss)
    return found


def _chart(model: str, base: Spread, found: Mapping[str, Mapping[str, Spread]]) -> Bars:
    series: dict[str, list[float | None]] = {
        what: [base.mean, *(spread.mean for spread in of.values())] for what, of in found.items()
    }
    return Bars(f"{TITLES[model]}: what is truncated", "accuracy", ["nothing", *SHOWN[model]], series)


def _lost(base: Spread, spread: Spread) -> str:
    return f"{-100 * spread.less(base).mean:.2f}"


def _finding(model: str, base: Spread, found: Mapping[str, Mapping[str, Spread]]) -> str:
    gradients, sent, kept = (
        ", ".join(_lost(base, found[what][case]) for case in SHOWN[model]) for what in (GRADIENTS, SENT, KEPT)
    )
    dropped = ", ".join(SHOWN[model])
    return (
        f"{TITLES[model]}, points of accuracy lost with {dropped} (a minus is a gain): gradients "
        f"{gradients}; weights as sent {sent}; weights as kept {kept}."
    )


def _premise(found: Found, base: Mapping[str, Spread]) -> str:
    def most(what: str, case: str) -> float:
        lost = [-100 * of[what][case].less(base[model]).mean for model, of in found.items() if case in of[what]]
        return max(0.0, *lost)

    def worst(what: str, case: str) -> str:
        return f"{most(what, case):.1f}"

    kept, sent, gradients = (worst(what, "24b-T") for what in (KEPT, SENT, GRADIENTS))
    line = (
        f"With 24 bits dropped, truncated gradients cost up to {gradients} points, weights that are kept truncated up "
        f"to {kept}: updates smaller than the truncation are lost, as INCEPTIONN says. Where an aggregator keeps "
        f"weights whole and truncates what it sends, A2DTWP's premise, it is up to {sent}"
    )
    if any("22b-T" in of[SENT] for of in found.values()):
        line += f", and with 22 bits dropped {worst(SENT, '22b-T')} instead of {worst(KEPT, '22b-T')}"
    enough = "are enough" if most(SENT, "24b-T") < _FEW_POINTS else "are not enough for every network"
    return f"{line}. So a whole copy is what makes few bits possible, and eight of them {enough}."
