"""A2DTWP's Tables II and III: the parts of a batch of VGG's time, with 32 bits and with A2DTWP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.cases import WeightCase, batches_of, cases, differs
from benchmarks.papers.a2dtwp.costs import legs
from benchmarks.papers.a2dtwp.training import AWP_NAME
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, percent
from softnic.measure.plot import Bars
from softnic.measure.spread import Spread

CODEC = "bounded:10"
"""Codec of the gradients where both legs are compressed."""
STEPS = (
    *("weights down", "gradients up", "convolution", "fully connected", "forward, backward", "gradient sum", "update"),
    *("AWP (l2-norm)", "ADT (Bitpack)", "ADT (Bitunpack)"),
)
Times = Mapping[str, float]
"""Milliseconds by step."""


def make(context: Context) -> Item:
    model = "vgg16" if "vgg16" in context.models else context.models[0]
    [given] = cases(context, [(model, batches_of(context, model)[-1])])
    both = legs(context, given.plan, f"wa+{CODEC}+adt:8")
    columns: dict[str, Times] = {
        f"{system} {what}": _published(profile)
        for system, pair in paper.PROFILES.items()
        for what, profile in zip(("32 bits", AWP_NAME), pair, strict=True)
    }
    bits = _bits(given)
    columns |= {"here 32 bits": _here(given, 32), f"here {bits.mean:.0f} bits": _here(given, bits.mean)}
    compressed = {"gradients up": 1e3 * both.up_s, "weights down": 1e3 * both.down_s}
    columns["here 8 bits, both legs"] = {**_here(given, 8), **compressed}
    rows: list[Row] = [[step, *(times.get(step) for times in columns.values())] for step in STEPS]
    rows.append(["total", *map(_total, columns.values())])
    shares = {step: [100 * times.get(step, 0) / _total(times) for times in columns.values()] for step in STEPS[:-2]}
    title = f"Milliseconds of a batch; paper: VGG, batch 64, Tables II and III; here: {given.title}"
    return Item(
        "what a batch's time goes to",
        [ValueTable(title, " | ".join(("step", *(f"{name} [.2f]" for name in columns))), rows)],
        [Bars("Share of the time", "%", list(columns), shares, stacked=True)],
        [
            "Bitpack and Bitunpack are measured on one core here, on all weights to 8 bits; NICs do both during the "
            "transfer, so they are part of it and not of the total.",
            f"The middle column has the mean bits of {AWP_NAME}'s trainings, {bits.text('.1f')}; the last one "
            f"compresses gradients, too, by {CODEC}, which the paper leaves to other work.",
            *differs(context),
        ],
        [*_findings(given), *_published_findings()],
        {"case": given.title},
    )


def _bits(given: WeightCase) -> Spread:
    """Return the mean bits of a float over each of A2DTWP's trainings."""
    return given.spread(AWP_NAME, lambda own: 8 * own.sent[-1] / (own.steps[-1] + 1) / given.costs.computed.floats)


def _here(given: WeightCase, bits: float) -> Times:
    costs, own = given.costs, given.costs.computed
    down = costs.least.down_s + (bits - 8) / 24 * (costs.whole.down_s - costs.least.down_s)
    steps = {
        "weights down": down,
        "gradients up": costs.whole.up_s,
        "forward, backward": own.learn_s,
        "gradient sum": costs.whole.sum_s,
        "update": own.update_s,
    }
    if bits < 32:
        steps |= {"AWP (l2-norm)": own.norms_s, "ADT (Bitpack)": own.pack_s, "ADT (Bitunpack)": own.unpack_s}
    return {step: 1e3 * seconds for step, seconds in steps.items()}


def _published(profile: paper.Profile) -> Times:
    names = (step for step in STEPS if step not in ("forward, backward", "gradient sum"))
    return {step: ms for step, ms in zip(names, astuple(profile), strict=True) if ms}


def _total(times: Times) -> float:
    """Return the total. Without a GPU, packing is part of the transfer."""
    return sum(ms for step, ms in times.items() if "forward, backward" not in times or "ADT" not in step)


def _findings(given: WeightCase) -> list[str]:
    costs, own = given.costs, given.costs.computed
    gain = costs.whole.down_s / costs.least.down_s
    packed = 1e-9 * 4 * own.floats
    theirs = " and ".join(f"1/{whole.weights / adaptive.weights:.2f}" for whole, adaptive in paper.PROFILES.values())
    return [
        f"With 8 bits the weights' leg takes 1/{gain:.2f} of its time with 32; with A2DTWP's it takes {theirs} in the "
        "paper (x86, POWER).",
        f"One core packs {packed / own.pack_s:.1f} GB/s and unpacks {packed / own.unpack_s:.1f}; AWP's norms take "
        f"{percent(own.norms_s / (own.norms_s + own.learn_s + own.update_s))} of the computing.",
    ]


def _published_findings() -> list[str]:
    return [
        f"By the paper's own profile of {system}, a batch takes {percent(1 - adaptive.total / whole.total)} less "
        f"with A2DTWP ({whole.total:.0f} and {adaptive.total:.0f} ms); for VGG with batch 64 it states "
        f"{percent(paper.GAINS[system]['vgg16'][64], 2)}."
        for system, (whole, adaptive) in paper.PROFILES.items()
    ]
