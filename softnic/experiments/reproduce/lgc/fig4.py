"""LGC's Fig. 4: how much of one node's gradients is known from another's, layer by layer, as the mean over the steps.

The paper quantises to 2^32 levels. Then every value of a layer is one of a kind, and the estimate of the mutual
information is the entropy's own, whatever the values are (softnic/gradients/information.py): so each figure is given
with that of shuffled gradients, and at a number of levels at which a histogram can tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.lgc import paper
from softnic.experiments.reproduce.lgc.gradients import steps
from softnic.experiments.reproduce.lgc.training import TITLES, networks_differ, plan
from softnic.experiments.reproduce.report import Item, percent
from softnic.gradients.information import LEVELS, PAPER_LEVELS, Information, estimate

NODES = 2
STEPS, EVERY = 150, 15
_LEAST_WORDS = 128
"""A histogram of fewer elements says nothing."""

Seen = Mapping[str, Sequence[tuple[Information, Information]]]
"""By parameter: at each step looked at, with the paper's levels and with ours."""


def make(context: Context) -> Item:
    count, every = _length(context)
    tables, charts, findings = [], [], []
    for model in plan(context).models:
        seen = _seen(context, model)
        rows = _rows(seen)
        tables.append(ValueTable(f"{TITLES[model]}: bits an element, mean over the steps", _COLUMNS, rows, model))
        charts.append(
            Bars(
                f"{TITLES[model]} (Fig. 4)",
                "bits",
                [str(row[0]) for row in rows],
                {
                    "entropy, 2^32 levels": [_number(row[2]) for row in rows],
                    "mutual, 2^32 levels": [_number(row[3]) for row in rows],
                    f"entropy, {LEVELS} levels": [_number(row[5]) for row in rows],
                    f"mutual beyond chance, {LEVELS} levels": [_number(row[6]) - _number(row[7]) for row in rows],
                },
            )
        )
        findings += _findings(model, rows)
    return Item(
        "lgc",
        "fig4",
        "information between nodes' gradients",
        tables,
        charts,
        [*networks_differ(context), f"Two nodes, {count} steps, one of {every} looked at."],
        findings,
        {"levels": LEVELS, "steps": count, "quick": context.quick},
    )


def _length(context: Context) -> tuple[int, int]:
    """Steps of a training, and of how many one is looked at."""
    return (4, 2) if context.quick else (STEPS, EVERY)


def _seen(context: Context, model: str) -> Seen:
    count, every = _length(context)
    seen: dict[str, list[tuple[Information, Information]]] = {}
    for step, (a, b) in enumerate(steps(context, model, NODES, count)):
        context.progress(f"lgc fig4: {TITLES[model]}, step {step + 1} of {count}")
        if step % every == every - 1:
            for name in a:
                if a[name].size >= _LEAST_WORDS:
                    both = estimate(a[name], b[name], PAPER_LEVELS), estimate(a[name], b[name], LEVELS)
                    seen.setdefault(name, []).append(both)
    return seen


_COLUMNS = [
    ValueColumn("layer"),
    ValueColumn("looks"),
    ValueColumn("H, 2^32", ".2f"),
    ValueColumn("I, 2^32", ".2f"),
    ValueColumn("I of shuffled, 2^32", ".2f"),
    ValueColumn(f"H, {LEVELS}", ".3f"),
    ValueColumn(f"I, {LEVELS}", ".3f"),
    ValueColumn(f"I of shuffled, {LEVELS}", ".3f"),
    ValueColumn("common beyond chance", ".3f"),
]


def _rows(seen: Seen) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for name, looks in seen.items():
        means = [
            float(np.mean([(each.entropy, each.mutual, each.by_chance)[index] for each in column]))
            for column in zip(*looks, strict=True)
            for index in range(3)
        ]
        common = float(np.mean([ours.common_beyond_chance for _, ours in looks]))
        rows.append([name, len(looks), *means, common])
    return rows


def _findings(model: str, rows: Sequence[Sequence[Value]]) -> list[str]:
    def shares(above: int, below: int) -> float:
        return float(np.mean([_number(row[above]) / max(_number(row[below]), 1e-9) for row in rows]))

    beyond = [_number(row[8]) for row in rows]
    return [
        f"{TITLES[model]}: with 2^32 levels the mutual information is {percent(shares(3, 2), 0)} of the entropy (the "
        f"paper: about {percent(paper.COMMON, 0)}); of shuffled gradients, which share nothing, "
        f"{percent(shares(4, 2), 0)}.",
        f"{TITLES[model]}: with {LEVELS} levels, what goes beyond chance is {percent(min(beyond))} to "
        f"{percent(max(beyond))} of the entropy, mean {percent(float(np.mean(beyond)))}.",
    ]


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return float(value)
