"""A2DTWP's Table I: the networks, the number of their parameters that precision applies to, and ours beside them."""

from __future__ import annotations

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.training import FIXED_BITS, sizes
from benchmarks.papers.context import Context, needs_torch
from benchmarks.papers.item import Item, Row, ValueTable, percent
from benchmarks.papers.learner import learner
from softnic.measure.plot import Bars


def make(context: Context) -> Item:
    rows: list[Row] = []
    heights: dict[str, list[float]] = {f"{bits} bits": [] for bits in FIXED_BITS}
    biases_shares = []
    for model in context.models:
        for where, layers, weights, biases in (("paper", *_published(model)), ("here", *_here(model, context))):
            # Biases always have 32 bits.
            megabytes = [(weights * bits / 8 + 4 * biases) / 1e6 for bits in FIXED_BITS]
            if weights:
                rows.append([paper.TITLES[model], where, layers, weights, biases, *megabytes])
                biases_shares.append(biases / (weights + biases))
        for bars, height in zip(heights.values(), megabytes, strict=True):
            bars.append(height)
    sizes_mb = " | ".join(f"MB at {bits} bits [.2f]" for bits in FIXED_BITS)
    columns = f"model | of | layers | weights [,d] | biases [,d] | {sizes_mb}"
    return Item(
        "networks, and the bytes of their weights",
        [ValueTable("Paper: Table I, 200 classes; here: ten classes, 28 x 28", columns, rows)],
        [Bars("Weights and biases, here", "MB", [paper.TITLES[model] for model in context.models], heights)],
        [
            "The paper does not give numbers of parameters; these follow from its Table I. It counts no shortcuts that "
            "change shape, and no normalisation; networks here have both, and arrays of one dimension travel whole.",
        ],
        [
            f"Biases are at most {percent(max(biases_shares), 2)} of what a network sends: packing them would save "
            "nothing."
        ],
        {"models": list(context.models)},
    )


def _published(model: str) -> tuple[int, int, int]:
    """Return the numbers of layers, weights and biases; zeros for HDC, which is not the paper's."""
    layers = paper.LAYERS.get(model, [])
    return len(layers), sum(layer.weights for layer in layers), sum(layer.biases for layer in layers)


def _here(model: str, context: Context) -> tuple[int, int, int]:
    with needs_torch(paper.TITLES[model]):
        built = learner(model, context.data, context.settings.seed)
    return sum(array.ndim > 1 for array in built.updated_weights().values()), *sizes(built)
