"""LGC's Tables IV to VI and Fig. 10: accuracy against compression, learning curves, and the time of each phase's steps.

Ratios are taken where the paper takes them: in the third phase, of the bytes that a node sends up, without the
broadcast down and without the phases before. Beside them are the bytes of all NICs on the wire in the whole training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from softnic.experiments.plot import Lines
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable, percent, points
from softnic.experiments.reproduce.lgc import paper
from softnic.experiments.reproduce.lgc.paper import PublishedMethod
from softnic.experiments.reproduce.lgc.training import TITLES, LgcPlan, MethodTraining, differs, plan, trained
from softnic.gradients.lgc.phases import COMPRESSED, PHASES

_COLUMNS = (
    "network | method | accuracy [.4f] | points [+.2f] | sent a step (bytes) [.0f] | ratio [.0f] | "
    "ratio of covered layers [.0f] | on the wire (MB) [.1f] | paper: points | paper: ratio"
)
_PHASE_COLUMNS = (
    "network | method | phase | ms [.1f] | of a full step [.2f] | paper [.2f] | sent, covered (bytes) [.0f] | "
    "down (bytes) [.0f] | weights, once (bytes) [.0f]"
)

Results = Mapping[str, Mapping[str, MethodTraining]]
"""Trainings by model, then by the paper's name of the method."""


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
    title = "Accuracy and compression; paper: ResNet50 in Tables VI (Cifar10) and IV (ImageNet)"
    return Item(
        "accuracy against compression",
        [
            ValueTable(title, _COLUMNS, _rows(results)),
            ValueTable("A step of each phase; paper: Table V", _PHASE_COLUMNS, _phase_rows(results), "phases"),
        ],
        [_curves(model, found) for model, found in results.items()],
        differs(context),
        [*_findings(results), _indices_finding()],
        {"learn": own.learn, **own.settings},
    )


def _rows(results: Results) -> list[Row]:
    return [
        [
            *(TITLES[model], name, each.accuracy, (each.accuracy - found[paper.BASELINE].accuracy) * 100),
            *(each.ranks[0].given_bytes / each.late_ratio, each.late_ratio, covered_ratio(each), each.wire / 1e6),
            _published(name, lambda row, base: f"{(row.accuracy - base.accuracy) * 100:+.2f}"),
            _published(name, lambda row, _base: row.ratio),
        ]
        for model, found in results.items()
        for name, each in found.items()
    ]


def covered_ratio(each: MethodTraining) -> float | None:
    """Return LGC's ratio on the layers it covers, in its third phase, mean over the ranks; None for other methods."""
    parts = [rank.traffic[COMPRESSED] for rank in each.ranks if rank.traffic]
    sent = sum(part["covered_sent"] for part in parts)
    return sum(part["covered_given"] for part in parts) / sent if sent else None


def _published(name: str, text: Callable[[PublishedMethod, PublishedMethod], str]) -> str:
    """`text` formats a method's row, and the baseline's, of Tables VI and IV."""
    tables = (paper.TABLE_6, paper.TABLE_4)
    return " and ".join(text(table[name], table[paper.BASELINE]) if name in table else "-" for table in tables)


def _phase_rows(results: Results) -> list[Row]:
    rows: list[Row] = []
    for model, found in results.items():
        for name in (paper.RING, paper.SERVER):
            ranks, begin, first = found[name].ranks, 0, 0.0
            steps = np.median([rank.seconds for rank in ranks], axis=0)
            for phase in PHASES:
                parts = [rank.traffic[phase] for rank in ranks]
                calls = parts[0]["calls"]
                seconds = float(np.median(steps[begin : begin + calls]))
                begin, first = begin + calls, first or seconds
                published = paper.TABLE_5[name]
                ratios = (seconds / first, published[phase] / published[PHASES[0]])
                sent, down = (
                    sum(part[leg] for part in parts) / (calls * len(parts)) for leg in ("covered_sent", "down")
                )
                weights = sum(part["weights"] for part in parts)
                rows.append([TITLES[model], name, phase, seconds * 1e3, *ratios, sent, down, weights])
    return rows


def _curves(model: str, found: Mapping[str, MethodTraining]) -> Lines:
    at = [each.step for each in found[paper.BASELINE].evaluations]
    series = {name: [evaluation.score for evaluation in each.evaluations] for name, each in found.items()}
    return Lines(f"{TITLES[model]}: accuracy (Fig. 10)", "steps", "", at, series)


def _findings(results: Results) -> list[str]:
    lines = []
    for model, found in results.items():
        base = found[paper.BASELINE]
        for name, goal in ((paper.RING, 202), (paper.SERVER, 386)):
            each = found[name]
            lines.append(
                f"{TITLES[model]}, {name}: {covered_ratio(each) or 0:.0f}x on the layers it covers, "
                f"{each.late_ratio:.0f}x with the first and the last (paper: {goal}x on ImageNet); "
                f"accuracy {points(base.accuracy - each.accuracy)} than the baseline's; "
                f"{percent(each.wire / base.wire)} of its bytes on the wire in the whole training, phases 1 and 2 and "
                "the broadcasts down included."
            )
    return lines


def _indices_finding() -> str:
    share = paper.SHARE
    bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    least = paper.RESNET101_WORDS * bits / 8
    return (
        f"Table VI has a worker of a parameter server send {paper.RESNET101_SENT / 1e6:.3f} MB of ResNet101's "
        f"gradients. To encode which 0.1 % of its {paper.RESNET101_WORDS / 1e6:.1f} million were selected takes "
        f"{least / 1e6:.3f} MB, unless they are predictable: its bytes cannot include the indices. Here they are sent."
    )
