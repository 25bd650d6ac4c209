"""LGC's Fig. 4: how much of one node's gradients is known from another's, layer by layer, as the mean over the steps.

The paper quantises to 2^32 levels. Then every value of a layer is one of a kind, and the estimate of the mutual
information is the entropy's own, whatever the values are (softnic/gradients/information.py): so each figure is given
with that of shuffled gradients, and at a number of levels at which a histogram can distinguish them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, number, percent
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.gradients import steps
from benchmarks.papers.lgc.training import TITLES, networks_differ, plan
from softnic.gradients.information import LEVELS, PAPER_LEVELS, Information, estimate
from softnic.measure.plot import Bars

NODES = 2
STEPS, EVERY = 150, 15
_LEAST_WORDS = 128
"""Layers with fewer elements are left out: their histograms say nothing."""
_COLUMNS = (
    "layer | looks | H, 2^32 [.2f] | I, 2^32 [.2f] | I of shuffled, 2^32 [.2f] | "
    f"H, {LEVELS} [.3f] | I, {LEVELS} [.3f] | I of shuffled, {LEVELS} [.3f] | common beyond chance [.3f]"
)

Bits = Sequence[float]
Estimates = Mapping[str, Sequence[tuple[Information, Information]]]
"""Estimates by parameter: at each step examined, with the paper's levels and with ours."""


def make(context: Context) -> Item:
    count, every = (4, 2) if context.quick else (STEPS, EVERY)
    tables, charts, findings = [], [], []
    for model in plan(context).models:
        rows = _rows(_estimates(context, model, count, every))
        tables.append(ValueTable(f"{TITLES[model]}: bits an element, mean over the steps", _COLUMNS, rows, model))
        _, entropy, mutual, chance, *ours, beyond = ([number(row[at]) for row in rows] for at in range(1, 9))
        series = {
            "entropy, 2^32 levels": entropy,
            "mutual, 2^32 levels": mutual,
            f"entropy, {LEVELS} levels": ours[0],
            f"mutual beyond chance, {LEVELS} levels": [a - b for a, b in zip(ours[1], ours[2], strict=True)],
        }
        charts.append(Bars(f"{TITLES[model]} (Fig. 4)", "bits", [str(row[0]) for row in rows], series))
        findings += _findings(TITLES[model], entropy, mutual, chance, beyond)
    return Item(
        "information between nodes' gradients",
        tables,
        charts,
        [networks_differ(context), f"Two nodes, {count} steps, one of {every} examined."],
        findings,
        {"levels": LEVELS, "steps": count},
    )


def _estimates(context: Context, model: str, count: int, every: int) -> Estimates:
    found: dict[str, list[tuple[Information, Information]]] = {}
    for step, (a, b) in enumerate(steps(context, model, NODES, count)):
        context.progress(f"lgc fig4: {TITLES[model]}, step {step + 1} of {count}")
        if step % every == every - 1:
            for name in (name for name in a if a[name].size >= _LEAST_WORDS):
                both = estimate(a[name], b[name], PAPER_LEVELS), estimate(a[name], b[name], LEVELS)
                found.setdefault(name, []).append(both)
    return found


def _rows(estimates: Estimates) -> list[Row]:
    rows: list[Row] = []
    for name, pairs in estimates.items():
        figures = [[part for each in pair for part in (each.entropy, each.mutual, each.by_chance)] for pair in pairs]
        common = float(np.mean([ours.common_beyond_chance for _, ours in pairs]))
        rows.append([name, len(pairs), *(float(np.mean(column)) for column in zip(*figures, strict=True)), common])
    return rows


def _findings(title: str, entropy: Bits, mutual: Bits, chance: Bits, beyond: Bits) -> list[str]:
    def share(bits: Bits) -> str:
        return percent(float(np.mean([a / max(b, 1e-9) for a, b in zip(bits, entropy, strict=True)])), 0)

    return [
        f"{title}: with 2^32 levels the mutual information is {share(mutual)} of the entropy (the "
        f"paper: about {percent(paper.COMMON, 0)}); of shuffled gradients, which share nothing, {share(chance)}.",
        f"{title}: with {LEVELS} levels, the part beyond chance is {percent(min(beyond))} to "
        f"{percent(max(beyond))} of the entropy, mean {percent(float(np.mean(beyond)))}.",
    ]
