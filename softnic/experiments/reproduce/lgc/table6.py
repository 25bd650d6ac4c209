"""LGC's Tables IV to VI and Fig. 10: accuracy against compression, learning curves, and the time of each phase's steps.

Ratios are taken where the paper takes them: in the third phase, of what a node sends up, without what comes down and
without the phases before. Beside them stands what all NICs put on the wire in the whole training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softnic.experiments.plot import Bars, Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.lgc import paper
from softnic.experiments.reproduce.lgc.training import TITLES, Plan, Trained, differs, plan, trained
from softnic.experiments.reproduce.report import Item, percent
from softnic.gradients.lgc.phases import COMPRESSED, PHASES

Results = Mapping[str, Mapping[str, Trained]]
"""By model, then by the paper's name of the method."""


def methods(given: Plan) -> dict[str, str]:
    """By the paper's names."""
    return {
        paper.BASELINE: "exact",
        paper.SPARSE_GD: "sparse-gd:0.001",
        paper.DGC: f"dgc:0.001,warmup={given.full}+m",
        paper.SCALECOM: "scalecom:0.001",
        paper.RING: f"lgc-ring:0.001,{given.phases}+m",
        paper.SERVER: f"lgc-ps:0.001,{given.phases}+m",
    }


def make(context: Context) -> Item:
    given = plan(context)
    results = {model: trained(context, model, methods(given), "lgc table6") for model in given.models}
    tables = [
        ValueTable(
            "Accuracy and compression; paper: ResNet50 in Tables VI (Cifar10) and IV (ImageNet)",
            _COLUMNS,
            _rows(results),
        ),
        ValueTable("A step of each phase; paper: Table V", _PHASE_COLUMNS, _phase_rows(results), "phases"),
    ]
    charts: list[Bars | Lines] = [_curves(model, found) for model, found in results.items()]
    return Item(
        "lgc",
        "table6",
        "accuracy against compression",
        tables,
        charts,
        differs(context),
        _findings(results),
        {
            "steps": given.steps,
            "full": given.full,
            "learn": given.learn,
            "workers": given.workers,
            "quick": context.quick,
        },
    )


_COLUMNS = [
    ValueColumn("network"),
    ValueColumn("method"),
    ValueColumn("accuracy", ".4f"),
    ValueColumn("points", "+.2f"),
    ValueColumn("sent a step (bytes)", ".0f"),
    ValueColumn("ratio", ".0f"),
    ValueColumn("ratio of covered layers", ".0f"),
    ValueColumn("on the wire (MB)", ".1f"),
    ValueColumn("paper: points"),
    ValueColumn("paper: ratio"),
]


def _rows(results: Results) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for model, found in results.items():
        base = found[paper.BASELINE].accuracy
        for name, each in found.items():
            rows.append(
                [
                    TITLES[model],
                    name,
                    each.accuracy,
                    (each.accuracy - base) * 100,
                    each.step_bytes / _late_ratio(each),
                    _late_ratio(each),
                    covered_ratio(each),
                    each.wire / 1e6,
                    _published(name, lambda row, first: f"{(row.accuracy - first.accuracy) * 100:+.2f}"),
                    _published(name, lambda row, _first: row.ratio),
                ]
            )
    return rows


def _late_ratio(each: Trained) -> float:
    """When nothing warms up any more: in the last tenth of the steps."""
    return each.ratio(len(each.losses) * 9 // 10)


def covered_ratio(each: Trained) -> float | None:
    """Of LGC, in its third phase, mean over the ranks."""
    parts = [rank[COMPRESSED] for rank in each.traffic if rank]
    sent = sum(part.covered_sent for part in parts)
    return sum(part.covered_given for part in parts) / sent if sent else None


def _published(name: str, say: object) -> str:
    told = []
    for table in (paper.TABLE_6, paper.TABLE_4):
        told.append(say(table[name], table[paper.BASELINE]) if name in table else "-")  # type: ignore[operator]
    return " and ".join(told)


_PHASE_COLUMNS = [
    ValueColumn("network"),
    ValueColumn("method"),
    ValueColumn("phase"),
    ValueColumn("ms", ".1f"),
    ValueColumn("of a full step", ".2f"),
    ValueColumn("paper", ".2f"),
    ValueColumn("sent, covered (bytes)", ".0f"),
    ValueColumn("down (bytes)", ".0f"),
    ValueColumn("weights, once (bytes)", ".0f"),
]


def _phase_rows(results: Results) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for model, found in results.items():
        for name in (paper.RING, paper.SERVER):
            each, begin, first = found[name], 0, 0.0
            for phase in PHASES:
                parts = [rank[phase] for rank in each.traffic]
                calls = parts[0].calls
                seconds = float(np.median(each.seconds[begin : begin + calls]))
                begin, first = begin + calls, first or seconds
                said = paper.TABLE_5[name]
                steps = calls * len(parts)
                rows.append(
                    [
                        *(TITLES[model], name, phase, seconds * 1e3, seconds / first, said[phase] / said[PHASES[0]]),
                        sum(part.covered_sent for part in parts) / steps,
                        sum(part.down for part in parts) / steps,
                        sum(part.weights for part in parts),
                    ]
                )
    return rows


def _curves(model: str, found: Mapping[str, Trained]) -> Lines:
    at = [float(step) for step, _ in found[paper.BASELINE].judged]
    series: Mapping[str, Sequence[float | None]] = {
        name: [accuracy for _, accuracy in each.judged] for name, each in found.items()
    }
    return Lines(f"{TITLES[model]}: accuracy (Fig. 10)", "steps", "", at, series)


def _findings(results: Results) -> list[str]:
    lines = []
    for model, found in results.items():
        base = found[paper.BASELINE]
        for name, goal in ((paper.RING, 202), (paper.SERVER, 386)):
            each = found[name]
            lost = base.accuracy - each.accuracy
            lines.append(
                f"{TITLES[model]}, {name}: {covered_ratio(each) or 0:.0f}x on the layers it covers, "
                f"{_late_ratio(each):.0f}x with the first and the last (paper: {goal}x on ImageNet); "
                f"accuracy {100 * abs(lost):.2f} points {'lower' if lost >= 0 else 'higher'} than the baseline's; "
                f"{percent(each.wire / base.wire)} of its bytes on the wire in the whole training, phases 1 and 2 and "
                "what comes down included."
            )
    return [*lines, _places_finding()]


def _places_finding() -> str:
    share = paper.SHARE
    bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    least = paper.RESNET101_WORDS * bits / 8
    return (
        f"Table VI has a worker of a parameter server send {paper.RESNET101_SENT / 1e6:.3f} MB of ResNet101's "
        f"gradients. To say which 0.1 % of its {paper.RESNET101_WORDS / 1e6:.1f} million were selected takes "
        f"{least / 1e6:.3f} MB, unless they could be foretold: its bytes cannot hold the places. Here they are sent."
    )
