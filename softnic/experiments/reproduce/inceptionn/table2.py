"""INCEPTIONN's Table II: where the time of 100 iterations goes with four workers and an aggregator.

Forward, backward and update are measured on one worker; sum and communication over real NICs on emulated links, with
gradients of real training.
"""

from __future__ import annotations

from dataclasses import dataclass

from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.exchange import over_nics, sample
from softnic.experiments.reproduce.inceptionn import compute, paper
from softnic.experiments.reproduce.inceptionn.compute import Compute
from softnic.experiments.reproduce.report import Item, percent
from softnic.units import rate_bps

RATE = "1gbit"
SAMPLE_BYTES = 8 << 20
QUICK_BYTES = 1 << 18
STEPS = ("forward pass", "backward pass", "GPU copy", "gradient sum", "communicate", "update")


@dataclass(frozen=True)
class Measured:
    """Seconds of an iteration."""

    compute: Compute
    sum_s: float
    communicate_s: float

    @property
    def steps(self) -> tuple[float, ...]:
        """In the order of STEPS. There is no GPU here."""
        own = self.compute
        return (own.forward_s, own.backward_s, 0.0, self.sum_s, self.communicate_s, own.update_s)


def make(context: Context) -> Item:
    rows: list[list[Value]] = []
    shares: dict[str, list[float | None]] = {step: [] for step in STEPS}
    groups, findings, differs = [], [], []
    for model in context.models:
        given = sample(context.stages(model)[-1].floats, paper.WORKERS, sample_bytes(context))
        own = compute.measured(model, context)
        context.progress(f"table2: {paper.TITLES[model]}, {given.megabytes:.1f} MB over five NICs")
        exchange = over_nics(context, model, given, "wa", RATE, 1 if context.quick else 5)
        measured = Measured(own, exchange.sum, exchange.exchange)
        rows += _rows(model, measured)
        groups += [f"{paper.TITLES[model]}\npaper", f"{paper.TITLES[model]}\nhere"]
        for step, theirs, ours in zip(STEPS, published(model), measured.steps, strict=True):
            shares[step] += [100 * theirs / paper.TABLE_2[model].total, 100 * ours / sum(measured.steps)]
        findings.append(_finding(model, measured))
        if given.scale > 1.001:
            part = f"{given.megabytes:.1f} of {given.whole_bytes / 1e6:.0f} MB"
            differs.append(f"{paper.TITLES[model]}: {part} were exchanged, and the time scaled up.")
    return Item(
        "inceptionn",
        "table2",
        "time of 100 iterations, worker-aggregator, four workers",
        [ValueTable("Seconds of 100 iterations; paper: Table II", _columns(), rows)],
        [Bars("Share of the time", "%", groups, shares, stacked=True)],
        [
            f"Links of {RATE}; the paper's are of {paper.LINK}. Computed by this machine's cores; the paper's by GPUs.",
            "Five NICs, four workers and the aggregator share this machine; they may be slower than the links.",
            *differs,
            *context.gradients_differ(),
        ],
        [*findings, *_published_findings()],
        {"rate": RATE, "models": list(context.models), "quick": context.quick},
    )


def sample_bytes(context: Context) -> int:
    """What is exchanged of a model, at most."""
    return QUICK_BYTES if context.quick else SAMPLE_BYTES


def published(model: str) -> tuple[float, ...]:
    """In the order of STEPS."""
    given = paper.TABLE_2[model]
    return (given.forward, given.backward, given.gpu_copy or 0, given.gradient_sum, given.communicate, given.update)


def _columns() -> list[ValueColumn]:
    return [
        ValueColumn("model"),
        ValueColumn("step"),
        ValueColumn("paper s", ".2f"),
        ValueColumn("paper %", ".1f"),
        ValueColumn("here s", ".2f"),
        ValueColumn("here %", ".1f"),
    ]


def _rows(model: str, measured: Measured) -> list[list[Value]]:
    total = sum(measured.steps)
    given = paper.TABLE_2[model]
    rows: list[list[Value]] = []
    for step, theirs, ours in zip(STEPS, published(model), measured.steps, strict=True):
        own: list[Value] = [100 * ours, 100 * ours / total] if ours else [None, None]
        rows.append([paper.TITLES[model], step, theirs or None, 100 * theirs / given.total if theirs else None, *own])
    rows.append([paper.TITLES[model], "total", given.total, 100.0, 100 * total, 100.0])
    return rows


def _finding(model: str, measured: Measured) -> str:
    given = paper.TABLE_2[model]
    ours = percent(measured.communicate_s / sum(measured.steps))
    theirs = percent(given.communicate / given.total)
    return f"{paper.TITLES[model]}: communication takes {ours} of the time; in the paper {theirs}."


def _published_findings() -> list[str]:
    """What the paper's table says of itself."""
    lines = []
    for model, given in paper.TABLE_2.items():
        n = paper.MODEL_MB[model] * 2**20
        link_s = paper.TABLE_2_ITERATIONS * 2 * paper.WORKERS * n * 8 / rate_bps(paper.LINK)
        lines.append(f"{paper.TITLES[model]} {given.communicate / link_s:.2f}")
    vgg = paper.TABLE_2["vgg16"]
    return [
        "The paper's communication, as a multiple of what the aggregator's link needs for p gradients in and p weights "
        f"out (2 p n / {paper.LINK}): {', '.join(lines)}.",
        f"The paper's steps of VGG-16 add up to {sum(published('vgg16')):.2f} s, not {vgg.total} s.",
        "The paper's HDC has 2.5 MB. Five fully connected layers 500 wide on MNIST have 4.4 (in 2^20 bytes).",
    ]
