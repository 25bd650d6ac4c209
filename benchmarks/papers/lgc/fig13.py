"""LGC's Fig. 13: the loss when sparsification begins at once, grows exponentially as in DGC, or begins after a warm-up.

The strategies differ in nothing but how many gradients a step sends: each is DGC's sparsification, without an
autoencoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable
from benchmarks.papers.lgc.training import (
    TITLES,
    LgcPlan,
    MethodTraining,
    differs,
    over_seeds,
    plan,
    trained,
)
from softnic.measure.plot import Lines
from softnic.measure.spread import Spread

FIXED, EXPONENTIAL, WARM_UP = "fixed", "exponential", "warm-up"
END_COLUMNS = "network | strategy | loss at the end | mean loss [.4f] | mean loss of all steps [.4f] | accuracy (%)"

Found = Mapping[str, Sequence[MethodTraining]]
"""Trainings by strategy: one for each seed."""


def strategies(own: LgcPlan) -> dict[str, str]:
    """Return the methods by strategy."""
    return {
        FIXED: "dgc:0.001",
        EXPONENTIAL: f"dgc:0.001,warmup={own.full}",
        WARM_UP: f"dgc:0.001,full={own.full}",
    }


def make(context: Context) -> Item:
    own = plan(context)
    rows: list[Row] = []
    ends: list[Row] = []
    charts, findings = [], []
    for model in own.models:
        found = trained(context, model, strategies(own), "lgc fig13")
        at = found[FIXED][0].losses_at
        curves = {name: _mean_curve(each) for name, each in found.items()}
        charts.append(Lines(f"{TITLES[model]}: training loss, mean over the seeds", "steps", "", list(at), curves))
        rows += [[TITLES[model], int(step), *losses] for step, *losses in zip(at, *curves.values(), strict=True)]
        ends += [_end_row(model, name, each) for name, each in found.items()]
        findings.append(_finding(model, found, own))
    columns = " | ".join(("network", "step", *(f"{name} [.4f]" for name in strategies(own))))
    return Item(
        "strategies of sparsification",
        [
            ValueTable("Training loss, mean of the steps before and of the seeds", columns, rows),
            ValueTable("The end of the trainings", END_COLUMNS, ends, "end"),
        ],
        charts,
        [
            *differs(context),
            "All strategies are DGC's sparsification to a thousandth; exponential growth and the warm-up take "
            f"{own.full} steps each. The paper gives neither the sparsification nor the lengths of its figure.",
        ],
        findings,
        own.settings,
    )


def _mean_curve(each: Sequence[MethodTraining]) -> list[float]:
    return [Spread(losses).mean for losses in zip(*(one.losses for one in each), strict=True)]


def _end(each: Sequence[MethodTraining]) -> Spread:
    return over_seeds(each, lambda one: one.losses[-1])


def _end_row(model: str, name: str, each: Sequence[MethodTraining]) -> Row:
    whole = Spread([Spread(one.losses).mean for one in each]).mean
    accuracy = over_seeds(each, lambda one: one.accuracy)
    return [TITLES[model], name, _end(each).text(".4f"), _end(each).mean, whole, accuracy.text(factor=100)]


def _finding(model: str, found: Found, own: LgcPlan) -> str:
    fixed, exponential, warm_up = (_end(found[name]).text(".4f") for name in (FIXED, EXPONENTIAL, WARM_UP))
    return (
        f"{TITLES[model]}: loss at the end {fixed} with sparsification from the first step, {exponential} with "
        f"exponential growth, {warm_up} after a warm-up of {own.full} full steps. In the paper the last one falls "
        "fastest."
    )
