"""INCEPTIONN's Fig. 14: compression ratios of truncation and of its codec, and what they do to accuracy.

Ratios are of gradients as one worker sends them first, for all models. The accuracy is of HDC, trained with each codec
for the same number of steps, every hop of the ring rounded; so are its ratios over all hops, which partial sums
make lower.
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
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.inceptionn import digits, paper
from softnic.experiments.reproduce.inceptionn.emulate import Ring
from softnic.experiments.reproduce.inceptionn.table3 import CHUNK_WORDS
from softnic.experiments.reproduce.parallel import each
from softnic.experiments.reproduce.report import Item, percent

BASE = "Base"
CASES: Mapping[str, str | None] = {
    BASE: None,
    "16b-T": "truncate:16",
    "22b-T": "truncate:10",
    "24b-T": "truncate:8",
    "INC(2^-10)": "inceptionn:10",
    "INC(2^-8)": "inceptionn:8",
    "INC(2^-6)": "inceptionn:6",
    "bounded:10": "bounded:10",
    "bounded:8": "bounded:8",
    "bounded:6": "bounded:6",
    "bfp:7": "bfp:7",
}
"""The paper's cases by its names, and softnic's own codecs."""
STEPS = {"digits": 600, "MNIST": 2000}
_LOOKS = 20
"""Steps of a training whose ring is measured, evenly spread."""


@dataclass(frozen=True)
class Trained:
    accuracy: float
    ratio: float
    """Over all hops of the ring."""


def ratio(codec: Codec, floats: Floats) -> float:
    """Bytes before to bytes after, of the floats as they are."""
    size = 0
    for start in range(0, floats.size, CHUNK_WORDS):
        size += len(codec.encode(np.ascontiguousarray(floats[start : start + CHUNK_WORDS])))
    return floats.nbytes / size


def trained(data_path: Path, steps: int, seed: int, codec: str | None) -> Trained:
    """HDC, exchanged over an emulated ring."""
    ring = Ring(codecs.get(codec)) if codec else None
    shares: list[float] = []

    def on_step(step: int, given: list[Floats]) -> None:
        if ring is not None and step % max(1, steps // _LOOKS) == 0:
            shares.append(1 / ring.ratio(given))

    done = digits.train(load(data_path), digits.Plan(steps, seed=seed), ring, on_step)
    return Trained(done.accuracy, 1 / float(np.mean(shares)) if shares else 1.0)


def make(context: Context) -> Item:
    steps = 10 if context.quick else STEPS.get(context.data.name, STEPS["MNIST"])
    ratios = _ratios(context)
    tables = [
        ValueTable("Compression ratio of one worker's gradients; paper: Fig. 14 (a)", _columns(ratios), _rows(ratios))
    ]
    charts = [Bars("Compression ratio", "times", list(CASES), {name: _known(of) for name, of in ratios.items()})]
    findings = _ratio_findings(ratios)
    differs = context.gradients_differ()
    if "hdc" in context.models:
        tasks = {case: (context.data_path, steps, context.settings.seed, name) for case, name in CASES.items()}
        context.progress(f"fig14: HDC is trained for {steps} steps with {len(tasks)} codecs")
        accuracy = each(trained, tasks, lambda what: context.progress(f"fig14: HDC, {what}"))
        tables.append(_accuracy_table(accuracy, steps))
        relative = [so.accuracy / accuracy[BASE].accuracy for so in accuracy.values()]
        charts.append(Bars("HDC, accuracy relative to Base", "", list(CASES), {f"{steps} steps": relative}))
        findings += _accuracy_findings(accuracy)
        differs.append(
            f"Accuracy is of HDC only: {steps} steps of four workers, the ring's rounding computed in one process. "
            "The other networks are not trained to the end here."
        )
    settings = {"models": list(context.models), "steps": steps, "quick": context.quick}
    return Item(
        "inceptionn", "fig14", "ratios and accuracy of lossy codecs", tables, charts, differs, findings, settings
    )


def _ratios(context: Context) -> dict[str, dict[str, float]]:
    """By model and stage, then by case."""
    found: dict[str, dict[str, float]] = {}
    for model in context.models:
        for stage in context.stages(model):
            context.progress(f"fig14: ratios of {paper.TITLES[model]}, {stage.title}")
            found[f"{paper.TITLES[model]}, {stage.title}"] = {
                case: ratio(codecs.get(name), stage.floats) for case, name in CASES.items() if name
            }
    return found


def _known(of: Mapping[str, float]) -> list[float | None]:
    return [of.get(case, 1.0) for case in CASES]


def _columns(ratios: Mapping[str, object]) -> list[ValueColumn]:
    return [ValueColumn("codec"), ValueColumn("paper"), *(ValueColumn(name, ".2f") for name in ratios)]


def _rows(ratios: Mapping[str, Mapping[str, float]]) -> list[list[Value]]:
    low, high = paper.FIG_14_RATIO_AT_10
    said: dict[str, str] = {f"{bits}b-T": f"{value:.1f}" for bits, value in paper.FIG_14_TRUNCATED_RATIO.items()}
    said |= {"INC(2^-10)": f"{low} to {high}", "INC(2^-6)": f"up to {paper.FIG_14_BEST_RATIO}"}
    return [[case, said.get(case), *(of[case] for of in ratios.values())] for case in CASES if case != BASE]


def _accuracy_table(accuracy: Mapping[str, Trained], steps: int) -> ValueTable:
    base = accuracy[BASE].accuracy
    rows: list[list[Value]] = []
    for case, result in accuracy.items():
        said = paper.FIG_14_BASE_ACCURACY["hdc"] if case == BASE else None
        lost = (result.accuracy - base) * 100
        rows.append([case, result.accuracy, result.accuracy / base, lost, said, result.ratio])
    columns = [
        ValueColumn("codec"),
        ValueColumn("accuracy", ".4f"),
        ValueColumn("relative", ".4f"),
        ValueColumn("points", "+.2f"),
        ValueColumn("paper: accuracy", ".3f"),
        ValueColumn("ratio over all hops", ".2f"),
    ]
    return ValueTable(f"HDC after {steps} steps; paper: Fig. 14 (b)", columns, rows, "accuracy")


def _ratio_findings(ratios: Mapping[str, Mapping[str, float]]) -> list[str]:
    def span(case: str) -> str:
        found = [of[case] for of in ratios.values()]
        return f"{min(found):.2f} to {max(found):.2f}"

    low, high = paper.FIG_14_RATIO_AT_10
    return [
        f"INC(2^-10): the paper has ratios of {low} to {high}; here {span('INC(2^-10)')}. INC(2^-6): up to "
        f"{paper.FIG_14_BEST_RATIO}, near the format's limit of 16; here {span('INC(2^-6)')}.",
        f"bounded:k, whose error stays below 2^-k and whose silent groups cost next to nothing: {span('bounded:10')} "
        f"at 2^-10, {span('bounded:8')} at 2^-8, {span('bounded:6')} at 2^-6.",
    ]


def _accuracy_findings(accuracy: Mapping[str, Trained]) -> list[str]:
    def lost(case: str) -> str:
        points = 100 * (accuracy[BASE].accuracy - accuracy[case].accuracy)
        return f"{abs(points):.2f} points {'lower' if points >= 0 else 'higher'}"

    return [
        f"HDC: the paper has less than {percent(paper.FIG_14_MOST_LOST, 0)} of accuracy lost with 2^-6. Here INC's is "
        f"{lost('INC(2^-10)')} with 2^-10, {lost('INC(2^-8)')} with 2^-8 and {lost('INC(2^-6)')} with 2^-6; bounded's "
        f"{lost('bounded:10')}, {lost('bounded:8')} and {lost('bounded:6')}.",
        "Truncation: the paper calls it suitable for simple networks such as HDC. Here "
        f"accuracy is {lost('16b-T')}, {lost('22b-T')} and {lost('24b-T')} with 16, 22 and 24 bits dropped.",
    ]
