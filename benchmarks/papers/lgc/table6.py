"""LGC's Tables IV to VI and Fig. 10: accuracy against compression, learning curves, and the time of each phase's steps.

Ratios are taken where the paper takes them: in the third phase, of the bytes that a node sends up, without the
broadcast down and without the phases before. Beside them are the bytes of all NICs on the wire in the whole training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, bars, percent, span
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.paper import PublishedMethod
from benchmarks.papers.lgc.training import (
    TITLES,
    LgcPlan,
    MethodTraining,
    differs,
    over_seeds,
    plan,
    trained,
)
from softnic.gradients.lgc.phases import COMPRESSED, PHASES
from softnic.measure.plot import Bars, Lines
from softnic.measure.spread import Spread

COLUMNS = (
    "network | method | accuracy (%) | points [+.2f] | ± [.2f] | sent a step (bytes) [.0f] | ratio [.0f] | "
    "ratio of covered layers [.0f] | on the wire (MB) [.1f] | times fewer on the wire [.1f] | paper: points | "
    "paper: ratio"
)
PHASE_COLUMNS = (
    "network | method | phase | ms | of a full step [.2f] | ± [.2f] | paper [.2f] | sent, covered (bytes) [.0f] | "
    "down (bytes) [.0f] | weights, once (bytes) [.0f]"
)

Results = Mapping[str, Mapping[str, Sequence[MethodTraining]]]
"""Trainings by model, then by the paper's name of the method: one for each seed."""


def methods(own: LgcPlan) -> dict[str, str]:
    """Return the methods by the paper's names."""
    return {
        paper.BASELINE: "exact",
        paper.SPARSE_GD: "sparse-gd:0.001",
        paper.DGC: f"dgc:0.001,warmup={own.full}",
        paper.SCALECOM: "scalecom:0.001",
        paper.RING: f"lgc-ring:0.001,{own.phases}",
        paper.SERVER: f"lgc-ps:0.001,{own.phases}",
    }


def make(context: Context) -> Item:
    own = plan(context)
    results = {model: trained(context, model, methods(own), "lgc table6") for model in own.models}
    phases = _phase_rows(results)
    title = "Accuracy and compression; paper: ResNet50 in Tables VI (Cifar10) and IV (ImageNet)"
    return Item(
        "accuracy against compression",
        [
            ValueTable(title, COLUMNS, _rows(results)),
            ValueTable("A step of each phase; paper: Table V", PHASE_COLUMNS, phases, "phases"),
        ],
        [*(_curves(model, found) for model, found in results.items()), _step_chart(phases)],
        [
            *differs(context),
            "Ratios count what a rank sends in a step of the last phase; on the wire is the whole training, by the "
            "NICs' counters. Mean over the seeds.",
        ],
        [*_findings(results), _against_dgc(results), _indices_finding()],
        {"learn": own.learn, **own.settings},
    )


def _rows(results: Results) -> list[Row]:
    rows: list[Row] = []
    for model, found in results.items():
        base = found[paper.BASELINE]
        for name, each in found.items():
            more, wire = _points(each, base), over_seeds(each, lambda one: one.wire).mean
            rows.append(
                [
                    *(TITLES[model], name, over_seeds(each, lambda one: one.accuracy).text(factor=100)),
                    *(more.mean, more.deviation, over_seeds(each, lambda one: one.late).mean, late_ratio(each)),
                    *(covered_ratio(each), wire / 1e6, over_seeds(base, lambda one: one.wire).mean / wire),
                    _published(name, lambda row, base: f"{(row.accuracy - base.accuracy) * 100:+.2f}"),
                    _published(name, lambda row, _base: row.ratio),
                ]
            )
    return rows


def _points(each: Sequence[MethodTraining], base: Sequence[MethodTraining]) -> Spread:
    """Return the points of accuracy more than the baseline of the same seed."""
    return Spread([100 * (one.accuracy - other.accuracy) for one, other in zip(each, base, strict=True)])


def late_ratio(each: Sequence[MethodTraining]) -> float:
    return over_seeds(each, lambda one: one.late_ratio).mean


def covered_ratio(each: Sequence[MethodTraining]) -> float | None:
    """Return LGC's ratio on the layers it covers, in its third phase; None for other methods."""
    parts = [one.phases[COMPRESSED] for one in each if one.phases]
    sent = sum(part.sent for part in parts)
    return sum(part.given for part in parts) / sent if sent else None


def _published(name: str, text: Callable[[PublishedMethod, PublishedMethod], str]) -> str:
    """`text` formats a method's row, and the baseline's, of Tables VI and IV."""
    tables = (paper.TABLE_6, paper.TABLE_4)
    return " and ".join(text(table[name], table[paper.BASELINE]) if name in table else "-" for table in tables)


def _phase_rows(results: Results) -> list[Row]:
    rows: list[Row] = []
    for model, found in results.items():
        for name in (paper.RING, paper.SERVER):
            published = paper.TABLE_5[name]
            for phase in PHASES:
                parts = [each.phases[phase] for each in found[name]]
                seconds = Spread([part.seconds for part in parts])
                whole = Spread(
                    [each.phases[phase].seconds / each.phases[PHASES[0]].seconds for each in found[name]],
                )
                sent, down, weights = (
                    Spread([float(getattr(part, leg)) for part in parts]).mean for leg in ("sent", "down", "weights")
                )
                theirs = published[phase] / published[PHASES[0]]
                times = (seconds.text(".1f", 1e3), whole.mean, whole.deviation, theirs)
                rows.append([TITLES[model], name, phase, *times, sent, down, weights])
    return rows


def _step_chart(rows: Sequence[Row]) -> Bars:
    """Return the steps of the last phase, of a full step, beside Table V's."""
    last = [row for row in rows if row[2] == COMPRESSED]
    groups = [f"{network}\n{str(method).partition('(')[2].rstrip(')')}" for network, method, *_ in last]
    return bars("A step of the last phase (Table V)", "of a full step", groups, last, {"paper": 6, "here": 4})


def _curves(model: str, found: Mapping[str, Sequence[MethodTraining]]) -> Lines:
    at = found[paper.BASELINE][0].at
    series = {
        name: [Spread(scores).mean for scores in zip(*(one.scores for one in each), strict=True)]
        for name, each in found.items()
    }
    return Lines(f"{TITLES[model]}: accuracy (Fig. 10), mean over the seeds", "steps", "", list(at), series)


def _findings(results: Results) -> list[str]:
    lines = []
    for model, found in results.items():
        base = found[paper.BASELINE]
        for name, goal in ((paper.RING, 202), (paper.SERVER, 386)):
            each = found[name]
            wire = over_seeds(each, lambda one: one.wire).mean / over_seeds(base, lambda one: one.wire).mean
            lines.append(
                f"{TITLES[model]}, {name}: {covered_ratio(each) or 0:.0f}x on the layers it covers, "
                f"{late_ratio(each):.0f}x with the first and the last (paper: {goal}x on ImageNet); "
                f"{_points(each, base).text('+.2f')} points against the baseline; "
                f"{percent(wire)} of its bytes on the wire in the whole training, phases 1 and 2 and "
                "the broadcasts down included."
            )
    return lines


def _against_dgc(results: Results) -> str:
    times = [
        over_seeds(found[name], lambda one: one.late).mean / over_seeds(found[paper.DGC], lambda one: one.late).mean
        for found in results.values()
        for name in (paper.RING, paper.SERVER)
    ]
    return (
        f"With the first and the last layer, which the autoencoder does not cover, a last step of LGC takes "
        f"{span(times, '.2f')} times the bytes of DGC's."
    )


def _indices_finding() -> str:
    share = paper.SHARE
    bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    least = paper.RESNET101_WORDS * bits / 8
    return (
        f"Table VI has a worker of a parameter server send {paper.RESNET101_SENT / 1e6:.3f} MB of ResNet101's "
        f"gradients. To encode which 0.1 % of its {paper.RESNET101_WORDS / 1e6:.1f} million were selected takes "
        f"{least / 1e6:.3f} MB, unless they are predictable: its bytes cannot include the indices. Here they are sent."
    )
