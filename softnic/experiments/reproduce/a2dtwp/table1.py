"""A2DTWP's Table I: the networks, how many of their parameters precision applies to, and ours beside them."""

from __future__ import annotations

from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.a2dtwp import models, paper
from softnic.experiments.reproduce.a2dtwp.training import sizes
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import Item, ReproduceError, needs_torch, percent

BITS = (8, 16, 24, 32)


def make(context: Context) -> Item:
    rows: list[list[Value]] = []
    heights: dict[str, list[float | None]] = {f"{bits} bits": [] for bits in BITS}
    for model in context.models:
        own = _here(model, context)
        for where, (weights, biases), layers in (("paper", *_published(model)), ("here", *own)):
            if weights:
                rows.append([paper.TITLES[model], where, layers, weights, biases, *_megabytes(weights, biases)])
        for bits in BITS:
            heights[f"{bits} bits"].append(_megabytes(*own[0])[BITS.index(bits)])
    return Item(
        "a2dtwp",
        "table1",
        "networks, and the bytes of their weights",
        [ValueTable("Paper: Table I, 200 classes; here: ten classes, 28 x 28", _COLUMNS, rows)],
        [Bars("Weights and biases, here", "MB", [paper.TITLES[model] for model in context.models], heights)],
        [
            "The paper does not give numbers of parameters; these follow from its Table I. It counts no shortcuts that "
            "change shape, and no normalisation; networks here have both, and what has one dimension travels whole.",
        ],
        [_biases(rows)],
        {"models": list(context.models), "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("model"),
    ValueColumn("of"),
    ValueColumn("layers"),
    ValueColumn("weights", ",d"),
    ValueColumn("biases", ",d"),
    *(ValueColumn(f"MB at {bits} bits", ".2f") for bits in BITS),
]


def _published(model: str) -> tuple[tuple[int, int], int]:
    layers = paper.LAYERS.get(model, [])
    return (sum(layer.weights for layer in layers), sum(layer.biases for layer in layers)), len(layers)


def _here(model: str, context: Context) -> tuple[tuple[int, int], int]:
    try:
        built = models.build(model, context.data, context.settings.seed)
    except ImportError as error:
        raise ReproduceError(needs_torch(paper.TITLES[model])) from error
    return sizes(built), sum(array.ndim > 1 for array in built.weights.values())


def _megabytes(weights: int, biases: int) -> list[float]:
    """By BITS; biases always have 32."""
    return [(weights * bits / 8 + 4 * biases) / 1e6 for bits in BITS]


def _biases(rows: list[list[Value]]) -> str:
    shares = [float(row[4] or 0) / (float(row[3] or 0) + float(row[4] or 0)) for row in rows]
    return f"Biases are at most {percent(max(shares), 2)} of what a network sends: packing them would save nothing."
