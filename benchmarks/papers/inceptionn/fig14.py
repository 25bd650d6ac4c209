"""INCEPTIONN's Fig. 14: compression ratios of truncation and of its codec, and the accuracy that they leave.

Ratios are of gradients as one worker sends them first, for all models. The accuracy is of HDC, trained with each codec
for the same number of steps and with every seed, every hop of the ring rounded; so are its ratios over all hops, which
are lower for partial sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import digits, paper
from benchmarks.papers.inceptionn.emulate import EmulatedRing, exact_sum
from benchmarks.papers.inceptionn.table3 import chunks
from benchmarks.papers.item import Item, Row, ValueTable, percent
from benchmarks.papers.over_nics import gradients_of
from benchmarks.papers.units import Unit, made
from softnic import codecs
from softnic.codecs import Codec
from softnic.experiments.data import Floats, load
from softnic.measure.plot import Bars
from softnic.measure.spread import Spread

BASE = "Base"
CASES: Mapping[str, str | None] = {
    BASE: None,
    "16b-T": "truncate:16",
    "22b-T": "truncate:10",
    "24b-T": "truncate:8",
    **{f"INC(2^-{k})": f"inceptionn:{k}" for k in paper.BOUNDS},
    **{f"bounded:{k}": f"bounded:{k}" for k in paper.BOUNDS},
    "bfp:7": "bfp:7",
}
"""The codecs of the paper's cases, by its names, and softnic's own codecs."""
STEPS = {"digits": 600, "MNIST": 1000}
_MEASURED_STEPS = 20
"""Steps of a training whose ring's ratio is measured, evenly spread."""
ACCURACY = (
    "codec | accuracy (%) | relative [.4f] | points [+.2f] | ± [.2f] | paper: accuracy [.3f] | "
    "ratio over all hops [.2f]"
)


@dataclass(frozen=True)
class Lossy:
    """The result of HDC's training with one codec."""

    accuracy: float
    ratio: float
    """Of the bytes over all hops of the ring."""


Results = Mapping[str, Sequence[Lossy]]
"""By case: one training for each seed."""
Ratios = Mapping[str, Mapping[str, float]]
"""Compression ratios by model and stage, then by case."""


def ratio(codec: Codec, floats: Floats) -> float:
    """Bytes of the floats, divided by their bytes as encoded."""
    return floats.nbytes / sum(len(codec.encode(chunk)) for chunk in chunks(floats))


def trained(data_path: Path, steps: int, seed: int, codec: str | None) -> Lossy:
    """HDC, exchanged over an emulated ring."""
    ring = EmulatedRing(codecs.get(codec)) if codec else None
    shares: list[float] = []

    workers = digits.HdcWorkers(load(data_path), digits.plan(steps, seed), ring or exact_sum)
    for step in workers.steps(steps):
        if ring is not None and (step - 1) % max(1, steps // _MEASURED_STEPS) == 0:
            shares.append(1 / ring.ratio(workers.gradients))
    return Lossy(workers.accuracy, 1 / float(np.mean(shares)) if shares else 1.0)


def make(context: Context) -> Item:
    steps = 10 if context.quick else STEPS.get(context.data.name, STEPS["MNIST"])
    ratios = _ratios(context)
    columns = " | ".join(("codec", "paper", *(f"{name} [.2f]" for name in ratios)))
    tables = [ValueTable("Compression ratio of one worker's gradients; paper: Fig. 14 (a)", columns, _rows(ratios))]
    known = {name: [of.get(case, 1.0) for case in CASES] for name, of in ratios.items()}
    charts = [Bars("Compression ratio", "times", list(CASES), known)]
    findings = _ratio_findings(ratios)
    differs = context.gradients_differ()
    if "hdc" in context.models:
        results = _trainings(context, steps)
        title = f"HDC after {steps} steps; paper: Fig. 14 (b)"
        tables.append(ValueTable(title, ACCURACY, _accuracy_rows(results), "accuracy"))
        base = _accuracy(results[BASE]).mean
        relative = {f"{steps} steps": [_accuracy(own).mean / base for own in results.values()]}
        charts.append(Bars("HDC, accuracy relative to Base", "", list(CASES), relative))
        findings += _accuracy_findings(results)
        differs.append(
            f"Accuracy is of HDC only: {steps} steps of four workers, the ring's rounding computed in one process; "
            f"mean and standard deviation over {len(results[BASE])} seed(s). The other networks are not trained to the "
            "end here."
        )
    settings = {"models": list(context.models), "steps": steps}
    return Item("ratios and accuracy of lossy codecs", tables, charts, differs, findings, settings)


def _trainings(context: Context, steps: int) -> dict[str, list[Lossy]]:
    """Return HDC's trainings with every codec, one for each seed, as the item's file keeps them."""
    settings = {"steps": steps, "data": context.data.name}
    units = {
        f"HDC, {case}, seed {seed}": Unit(settings, (context.data_path, steps, seed, name))
        for seed in context.seeds
        for case, name in CASES.items()
    }
    context.progress(f"fig14: HDC is trained for {steps} steps {len(units)} times")
    done = made(context.kept, Lossy, trained, units, lambda what: context.progress(f"fig14: {what}"))
    return {case: [done[f"HDC, {case}, seed {seed}"] for seed in context.seeds] for case in CASES}


def _ratios(context: Context) -> Ratios:
    found: dict[str, dict[str, float]] = {}
    for model in context.models:
        for stage in context.stages(model):
            title = f"{paper.TITLES[model]}, {stage.title}"
            context.progress(f"fig14: ratios of {title}")
            found[title] = context.kept.once(
                title,
                {**gradients_of(context), "codecs": list(CASES.values())},
                lambda of=stage: {case: ratio(codecs.get(name), of.floats) for case, name in CASES.items() if name},  # type: ignore[misc]
                dict[str, float],
            )
    return found


def _rows(ratios: Ratios) -> list[Row]:
    low, high = paper.FIG_14_RATIO_AT_10
    published: dict[str, str] = {f"{bits}b-T": f"{value:.1f}" for bits, value in paper.FIG_14_TRUNCATED_RATIO.items()}
    published |= {"INC(2^-10)": f"{low} to {high}", "INC(2^-6)": f"up to {paper.FIG_14_BEST_RATIO}"}
    return [[case, published.get(case), *(of[case] for of in ratios.values())] for case in CASES if case != BASE]


def _accuracy(of: Sequence[Lossy]) -> Spread:
    return Spread([own.accuracy for own in of])


def _points(of: Sequence[Lossy], base: Sequence[Lossy]) -> Spread:
    """Return the points of accuracy more than those of the same seeds without compression."""
    return Spread([100 * value for value in _accuracy(of).less(_accuracy(base)).values])


def _accuracy_rows(results: Results) -> list[Row]:
    base = results[BASE]
    published = {BASE: paper.FIG_14_BASE_ACCURACY["hdc"]}
    rows: list[Row] = []
    for case, of in results.items():
        more, relative = _points(of, base), _accuracy(of).mean / _accuracy(base).mean
        ratio_over = Spread([own.ratio for own in of]).mean
        accuracy = _accuracy(of).text(factor=100)
        rows.append([case, accuracy, relative, more.mean, more.deviation, published.get(case), ratio_over])
    return rows


def _ratio_findings(ratios: Ratios) -> list[str]:
    def span(case: str) -> str:
        found = [of[case] for of in ratios.values()]
        return f"{min(found):.2f} to {max(found):.2f}"

    low, high = paper.FIG_14_RATIO_AT_10
    return [
        f"INC(2^-10): the paper has ratios of {low} to {high}; here {span('INC(2^-10)')}. INC(2^-6): up to "
        f"{paper.FIG_14_BEST_RATIO}, near the format's limit of 16; here {span('INC(2^-6)')}.",
        f"bounded:k, whose error stays below 2^-k and whose groups of zeros cost next to nothing: {span('bounded:10')} "
        f"at 2^-10, {span('bounded:8')} at 2^-8, {span('bounded:6')} at 2^-6.",
    ]


def _accuracy_findings(results: Results) -> list[str]:
    def changed(case: str) -> str:
        return _points(results[case], results[BASE]).text("+.2f")

    return [
        f"HDC: the paper has less than {percent(paper.FIG_14_MOST_LOST, 0)} of accuracy lost with 2^-6. Here the "
        f"points more than Base's are INC's {changed('INC(2^-10)')} with 2^-10, {changed('INC(2^-8)')} with 2^-8 and "
        f"{changed('INC(2^-6)')} with 2^-6; bounded's {changed('bounded:10')}, {changed('bounded:8')} and "
        f"{changed('bounded:6')}.",
        "Truncation: the paper calls it suitable for simple networks such as HDC. Here the points more than Base's are "
        f"{changed('16b-T')}, {changed('22b-T')} and {changed('24b-T')} with 16, 22 and 24 bits dropped.",
    ]
