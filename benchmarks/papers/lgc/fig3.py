"""LGC's Fig. 3: entropy and mutual information of two nodes' gradients by iteration and layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, percent, span
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.over_steps import Look, looks
from benchmarks.papers.lgc.training import TITLES, networks_differ, plan
from softnic.gradients.information import LEVELS
from softnic.measure.plot import Lines

COUNT, AT = 150, (1, 5, 10, 25, 50, 100, 150)
QUICK_COUNT, QUICK_AT = 2, (1, 2)


def make(context: Context) -> Item:
    count, at = (QUICK_COUNT, QUICK_AT) if context.quick else (COUNT, AT)
    tables, findings = [], []
    charts: list[Lines] = []
    for model in plan(context).models:
        found = looks(context, model, 2, (0, 1), count, at)
        rows = _rows(found, at)
        columns = " | ".join(("layer", *(f"step {step} [.3f]" for step in at)))
        title = f"{TITLES[model]}: share of the entropy that is common beyond chance, {LEVELS} levels"
        tables.append(ValueTable(title, columns, rows, model))
        if not charts:
            charts.append(_chart(model, found, at))
        findings.append(_finding(model, found))
    return Item(
        "information between two nodes' gradients over a training",
        tables,
        charts,
        [networks_differ(context), f"Two nodes, {count} steps; the paper shows whole trainings."],
        findings,
        {"steps": list(at)},
    )


def _rows(found: Sequence[Look], at: Sequence[int]) -> list[Row]:
    by_layer: dict[str, dict[int, float]] = {}
    for look in found:
        by_layer.setdefault(look.layer, {})[look.step] = look.beyond
    return [[layer, *(of[step] for step in at)] for layer, of in by_layer.items()]


def _chart(model: str, found: Sequence[Look], at: Sequence[int]) -> Lines:
    def mean(name: str) -> list[float]:
        return [float(np.mean([getattr(look, name) for look in found if look.step == step])) for step in at]

    series = {
        "entropy, 2^32 levels": mean("entropy"),
        "mutual, 2^32 levels": mean("mutual"),
        "mutual of shuffled, 2^32 levels": mean("chance"),
        f"entropy, {LEVELS} levels": mean("coarse_entropy"),
        f"mutual, {LEVELS} levels": mean("coarse_mutual"),
        f"mutual of shuffled, {LEVELS} levels": mean("coarse_chance"),
    }
    return Lines(f"{TITLES[model]}: mean over the layers", "step", "bits", at, series)


def _finding(model: str, found: Sequence[Look]) -> str:
    shares, chances = ([getattr(look, name) for look in found] for name in ("share", "chance_share"))
    beyond = [look.beyond for look in found]
    return (
        f"{TITLES[model]}: by the paper's estimate {span(shares)} of a layer's entropy is common (the paper: about "
        f"{percent(paper.COMMON, 0)}), of shuffled gradients {span(chances)}. With {LEVELS} levels {span(beyond)} is "
        f"common beyond chance, {percent(float(np.mean(beyond)))} on average."
    )
