"""From what size on which algorithm is quickest: all-reduces of growing buffers, each algorithm by turns.

Where softnic/collectives/schedule/choice.py has its thresholds from. Each size is a run of `softnic bench allreduce`;
shares of the ring's time are of the same round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from softnic.bench import allreduce
from softnic.bench.rank import EXACT, ORDINARY
from softnic.experiments.report import Column, Progress, Report, figure, links
from softnic.units import text_bytes


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...] = tuple(4**power for power in range(4, 13))
    """Bytes a rank: 256 to 16 Mi."""
    algorithms: tuple[str, ...] = ("ring", "direct", "tree", "hierarchical", "wa")
    codec: str = "bounded:10"
    nodes: int = 4
    rounds: int = 15
    memory: str = ORDINARY
    link: Mapping[str, str] = field(default_factory=lambda: dict(allreduce.LINK))


@dataclass(frozen=True)
class SizeRow:
    size: int
    case: str
    seconds: Mapping[str, float]
    """By algorithm: of one call."""
    cpu_s: Mapping[str, float]
    """Of all daemons and ranks."""

    @property
    def quickest(self) -> str:
        return min(self.seconds, key=lambda name: self.seconds[name])


def run(plan: Plan, progress: Progress = lambda _what: None) -> Report[SizeRow]:
    """Raises MeasurementError, ClusterError."""
    rows = []
    for size in plan.sizes:
        text = text_bytes(size)
        single = allreduce.Plan(
            (plan.codec,), plan.nodes, size / 1e6, plan.rounds, memory=(plan.memory,), algorithms=plan.algorithms,
            link=plan.link,
        )  # fmt: skip
        found = allreduce.run(single, lambda what, text=text: progress(f"{text}: {what}")).rows  # type: ignore[misc]
        rows += [
            SizeRow(
                size,
                case,
                {row.algorithm: row.seconds for row in found if row.case == case},
                {row.algorithm: row.daemons_cpu_s + row.ranks_cpu_s for row in found if row.case == case},
            )
            for case in (EXACT, plan.codec)
        ]
    what = f"All-reduce at {plan.nodes} ranks, milliseconds by algorithm"
    title = f"{what}; links: {links(plan.link)}; medians of {plan.rounds} calls"
    settings = {"nodes": plan.nodes, "rounds": plan.rounds, "memory": plan.memory, "link": dict(plan.link)}
    return Report("crossover", title, _columns(plan), rows, settings)


def _columns(plan: Plan) -> list[Column[SizeRow]]:
    def cell(name: str) -> Column[SizeRow]:
        return Column(name, lambda row: figure(row.seconds[name] * 1000, ".3g"))

    return [
        Column("buffer", lambda row: text_bytes(row.size)),
        Column("floats", lambda row: row.case, left=True),
        *map(cell, plan.algorithms),
        Column("quickest", lambda row: row.quickest, left=True),
    ]


def markdown(report: Report[SizeRow]) -> str:
    """The table as docs/algorithms.md has it."""
    rows = [[column.text(row) for column in report.columns] for row in report.rows]
    heads = [column.heading for column in report.columns]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [heads, ["---"] * len(heads), *rows])
