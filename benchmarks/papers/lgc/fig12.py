"""LGC's Fig. 12: information between two of many nodes, 8 to 32, trained in one process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, percent
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.over_steps import Look, looks
from benchmarks.papers.lgc.training import BATCH, TITLES, networks_differ
from softnic.gradients.information import LEVELS
from softnic.measure.plot import Lines

MODEL = "convnet"
PAIRS = {8: (2, 7), 16: (2, 10), 22: (7, 9), 32: (2, 10)}
"""Numbers of nodes, and the two that are examined: of 16 and 22 those of the paper, counted from 0."""
COUNT, AT = 40, (1, 5, 10, 20, 40)
QUICK_PAIRS, QUICK_COUNT, QUICK_AT = {4: (1, 3)}, 2, (1, 2)
_COLUMNS = (
    "nodes | step | H, 2^32 [.2f] | I, 2^32 [.2f] | I of shuffled, 2^32 [.2f] | "
    f"H, {LEVELS} [.3f] | I, {LEVELS} [.3f] | I of shuffled, {LEVELS} [.3f] | common beyond chance [.3f]"
)
_FIGURES = ("entropy", "mutual", "chance", "coarse_entropy", "coarse_mutual", "coarse_chance", "beyond")


def make(context: Context) -> Item:
    pairs, count, at = (QUICK_PAIRS, QUICK_COUNT, QUICK_AT) if context.quick else (PAIRS, COUNT, AT)
    rows: list[Row] = []
    for nodes, pair in pairs.items():
        found = looks(context, MODEL, nodes, pair, count, at)
        rows += [[nodes, step, *_means(found, step)] for step in at]
    title = f"{TITLES[MODEL]}: bits an element, mean over the layers; paper: Fig. 12"
    series: dict[str, list[float | None]] = {}
    for nodes in pairs:
        own = [row for row in rows if row[0] == nodes]
        series[f"{nodes} nodes, mutual"] = [float(row[6] or 0) for row in own]
        series[f"{nodes} nodes, shuffled"] = [float(row[7] or 0) for row in own]
    dashed = frozenset(name for name in series if name.endswith("shuffled"))
    return Item(
        "information between two of many nodes",
        [ValueTable(title, _COLUMNS, rows)],
        [Lines(f"{LEVELS} levels", "step", "bits", at, series, dashed)],
        [
            networks_differ(context),
            f"{count} steps of {BATCH} images a node on {context.data.name}; the paper has VGG11 on Food101 with 16 "
            "nodes (25,000 steps), ConvNet5 on Tiny ImageNet with 22 (14,000), and 128 images for all nodes.",
        ],
        _findings(rows),
        {"steps": list(at), "nodes": list(pairs)},
    )


def _means(found: Sequence[Look], step: int) -> list[float]:
    return [float(np.mean([getattr(look, name) for look in found if look.step == step])) for name in _FIGURES]


def _findings(rows: Sequence[Row]) -> list[str]:
    lines = []
    for nodes in dict.fromkeys(row[0] for row in rows):
        own = np.array([[float(value or 0) for value in row[2:]] for row in rows if row[0] == nodes]).mean(axis=0)
        lines.append(
            f"{nodes} nodes: by the paper's estimate {percent(own[1] / own[0])} of the entropy is common to two nodes, "
            f"and {percent(own[2] / own[0])} to shuffled gradients; with {LEVELS} levels {percent(own[6])} is common "
            "beyond chance."
        )
    return [
        *lines,
        f"The paper finds a large part common with 16 and 22 nodes, as with two (about {percent(paper.COMMON, 0)}).",
    ]
