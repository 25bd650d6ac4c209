"""INCEPTIONN's Fig. 14: compression ratios of truncation and of its codec, and the accuracy that they leave.

Ratios are of gradients as one worker sends them first, for all models. The accuracy is of HDC, trained with each codec
for the same number of steps, every hop of the ring rounded; so are its ratios over all hops, which are lower for
partial sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softnic import codecs
from softnic.codecs import Codec
from softnic.experiments.data import Floats, load
from softnic.experiments.plot import Bars
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.inceptionn import digits, paper
from softnic.experiments.reproduce.inceptionn.emulate import EmulatedRing, exact_sum
from softnic.experiments.reproduce.inceptionn.table3 import chunks
from softnic.experiments.reproduce.item import Item, Row, ValueTable, percent, points
from softnic.experiments.reproduce.parallel import each

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
STEPS = {"digits": 600, "MNIST": 2000}
_MEASURED_STEPS = 20
"""Steps of a training whose ring's ratio is measured, evenly spread."""
_ACCURACY = (
    "codec | accuracy [.4f] | relative [.4f] | points [+.2f] | paper: accuracy [.3f] | ratio over all hops [.2f]"
)


@dataclass(frozen=True)
class Lossy:
    """The result of HDC's training with one codec."""

    accuracy: float
    ratio: float
    """Of the bytes over all hops of the ring."""


Ratios = Mapping[str, Mapping[str, float]]
"""Compression ratios by model and stage, then by case."""


def ratio(codec: Codec, floats: Floats) -> float:
    """Bytes of the floats, divided by their bytes as encoded."""
    return floats.nbytes / sum(len(codec.encode(chunk)) for chunk in chunks(floats))


def trained(data_path: Path, steps: int, seed: int, codec: str | None) -> Lossy:
    """HDC, exchanged over an emulated ring."""
    ring = EmulatedRing(codecs.get(codec)) if codec else None
    shares: list[float] = []

    def on_step(step: int, gradients: list[Floats]) -> None:
        if ring is not None and step % max(1, steps // _MEASURED_STEPS) == 0:
            shares.append(1 / ring.ratio(gradients))

    done = digits.train(load(data_path), digits.plan(steps, seed), ring or exact_sum, on_step)
    return Lossy(done.accuracy, 1 / float(np.mean(shares)) if shares else 1.0)


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
        tasks = {case: (context.data_path, steps, context.settings.seed, name) for case, name in CASES.items()}
        context.progress(f"fig14: HDC is trained for {steps} steps with {len(tasks)} codecs")
        results = each(trained, tasks, lambda what: context.progress(f"fig14: HDC, {what}"))
        title = f"HDC after {steps} steps; paper: Fig. 14 (b)"
        tables.append(ValueTable(title, _ACCURACY, _accuracy_rows(results), "accuracy"))
        relative = {f"{steps} steps": [own.accuracy / results[BASE].accuracy for own in results.values()]}
        charts.append(Bars("HDC, accuracy relative to Base", "", list(CASES), relative))
        findings += _accuracy_findings(results)
        differs.append(
            f"Accuracy is of HDC only: {steps} steps of four workers, the ring's rounding computed in one process. "
            "The other networks are not trained to the end here."
        )
    settings = {"models": list(context.models), "steps": steps}
    return Item("ratios and accuracy of lossy codecs", tables, charts, differs, findings, settings)


def _ratios(context: Context) -> Ratios:
    found: dict[str, dict[str, float]] = {}
    for model in context.models:
        for stage in context.stages(model):
            title = f"{paper.TITLES[model]}, {stage.title}"
            context.progress(f"fig14: ratios of {title}")
            found[title] = {case: ratio(codecs.get(name), stage.floats) for case, name in CASES.items() if name}
    return found


def _rows(ratios: Ratios) -> list[Row]:
    low, high = paper.FIG_14_RATIO_AT_10
    published: dict[str, str] = {f"{bits}b-T": f"{value:.1f}" for bits, value in paper.FIG_14_TRUNCATED_RATIO.items()}
    published |= {"INC(2^-10)": f"{low} to {high}", "INC(2^-6)": f"up to {paper.FIG_14_BEST_RATIO}"}
    return [[case, published.get(case), *(of[case] for of in ratios.values())] for case in CASES if case != BASE]


def _accuracy_rows(results: Mapping[str, Lossy]) -> list[Row]:
    base = results[BASE].accuracy
    published = {BASE: paper.FIG_14_BASE_ACCURACY["hdc"]}
    return [
        [case, own.accuracy, own.accuracy / base, (own.accuracy - base) * 100, published.get(case), own.ratio]
        for case, own in results.items()
    ]


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


def _accuracy_findings(results: Mapping[str, Lossy]) -> list[str]:
    def lost(case: str) -> str:
        return points(results[BASE].accuracy - results[case].accuracy)

    return [
        f"HDC: the paper has less than {percent(paper.FIG_14_MOST_LOST, 0)} of accuracy lost with 2^-6. Here INC's is "
        f"{lost('INC(2^-10)')} with 2^-10, {lost('INC(2^-8)')} with 2^-8 and {lost('INC(2^-6)')} with 2^-6; bounded's "
        f"{lost('bounded:10')}, {lost('bounded:8')} and {lost('bounded:6')}.",
        "Truncation: the paper calls it suitable for simple networks such as HDC. Here "
        f"accuracy is {lost('16b-T')}, {lost('22b-T')} and {lost('24b-T')} with 16, 22 and 24 bits dropped.",
    ]
