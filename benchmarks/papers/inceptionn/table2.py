"""INCEPTIONN's Table II: where the time of 100 iterations goes with four workers and an aggregator.

Forward, backward and update are measured on one worker; sum and communication over real NICs on emulated links, with
gradients of real training.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import compute, paper
from benchmarks.papers.item import Item, Row, ValueTable, percent
from benchmarks.papers.over_nics import RATE, over_nics, sample_size
from softnic.measure.plot import Bars
from softnic.units import rate_bps

STEPS = ("forward pass", "backward pass", "GPU copy", "gradient sum", "communicate", "update")
_COMMUNICATE = STEPS.index("communicate")


def make(context: Context) -> Item:
    rows: list[Row] = []
    shares: dict[str, list[float | None]] = {step: [] for step in STEPS}
    groups, findings, differs = [], [], []
    for model in context.models:
        title, published = paper.TITLES[model], paper.TABLE_2[model]
        exchanged = sample_size(context, model)
        own = compute.measured(model, context)
        context.progress(f"table2: {title}, {exchanged.megabytes:.1f} MB over five NICs")
        exchange = over_nics(context, model, "wa")
        here = (own.forward_s, own.backward_s, 0.0, exchange.sum, exchange.exchange, own.update_s)
        rows += _rows(title, published, here)
        groups += [f"{title}\npaper", f"{title}\nhere"]
        for step, theirs, ours in zip(STEPS, published.steps, here, strict=True):
            shares[step] += [100 * theirs / published.total, 100 * ours / sum(here)]
        findings.append(
            f"{title}: communication takes {percent(here[_COMMUNICATE] / sum(here))} of the time; in the paper "
            f"{percent(published.communicate / published.total)}."
        )
        if exchanged.scale > 1.001:
            part = f"{exchanged.megabytes:.1f} of {exchanged.whole_bytes / 1e6:.0f} MB"
            differs.append(f"{title}: {part} were exchanged, and the time scaled up.")
    columns = "model | step | paper s [.2f] | paper % [.1f] | here s [.2f] | here % [.1f]"
    return Item(
        "time of 100 iterations, worker-aggregator, four workers",
        [ValueTable("Seconds of 100 iterations; paper: Table II", columns, rows)],
        [Bars("Share of the time", "%", groups, shares, stacked=True)],
        [
            f"Links of {RATE}; the paper's are of {paper.LINK}. Computed by this machine's cores; the paper's by GPUs.",
            "Five NICs, four workers and the aggregator share this machine; they may be slower than the links.",
            *differs,
            *context.gradients_differ(),
        ],
        [*findings, *_published_findings()],
        {"rate": RATE, "models": list(context.models)},
    )


def _rows(title: str, published: paper.IterationTimes, here: Sequence[float]) -> list[Row]:
    """Return a model's rows; `here` holds the seconds of an iteration by step."""

    def cells(seconds: float, total: float) -> Row:
        return [seconds, 100 * seconds / total] if seconds else [None, None]

    total = sum(here)
    each = zip(STEPS, published.steps, here, strict=True)
    rows = [
        [title, step, *cells(theirs, published.total), *cells(100 * ours, 100 * total)] for step, theirs, ours in each
    ]
    return [*rows, [title, "total", published.total, 100.0, 100 * total, 100.0]]


def _published_findings() -> list[str]:
    """Return findings that follow from the paper's table alone."""
    lines = []
    for model, published in paper.TABLE_2.items():
        n = paper.MODEL_MB[model] * 2**20
        link_s = paper.TABLE_2_ITERATIONS * 2 * paper.WORKERS * n * 8 / rate_bps(paper.LINK)
        lines.append(f"{paper.TITLES[model]} {published.communicate / link_s:.2f}")
    vgg = paper.TABLE_2["vgg16"]
    return [
        "The paper's communication, as a multiple of the time on the aggregator's link of p gradients in and p weights "
        f"out (2 p n / {paper.LINK}): {', '.join(lines)}.",
        f"The paper's steps of VGG-16 add up to {sum(vgg.steps):.2f} s, not {vgg.total} s.",
        "The paper's HDC has 2.5 MB. Five fully connected layers 500 wide on MNIST have 4.4 (in 2^20 bytes).",
    ]
