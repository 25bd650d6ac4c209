"""What `softnic demo` tells of its runs: figures, and the one table that they end in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from softnic.experiments.report import links
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.trainer import Outcome, TrainingPlan
from softnic.units import rate_bps, text_bytes

_WIDTH = 100
"""Of a table that goes to no terminal."""
_IDLE = 0.5
"""Links that are busy less than this do not limit a run."""


@dataclass(frozen=True)
class RunReport:
    """One run, over all its ranks."""

    codec: str
    """Or `exact`."""
    accuracy: float
    loss: float
    exchange_s: float
    """Time inside the exchanges, of the rank that was longest in them."""
    total_s: float
    traffic: NicTraffic
    weights: str
    """Digest of the final weights, which all ranks share."""

    @classmethod
    def of(cls, codec: str, outcomes: Sequence[Outcome], traffic: NicTraffic) -> RunReport:
        return cls(
            codec,
            outcomes[0].accuracy,
            sum(outcome.loss for outcome in outcomes) / len(outcomes),
            max(outcome.exchange_s for outcome in outcomes),
            max(outcome.total_s for outcome in outcomes),
            traffic,
            outcomes[0].weights,
        )

    def speed_up(self, exact: RunReport) -> float:
        """How many times shorter the exchanges are."""
        return exact.exchange_s / self.exchange_s

    def links_busy(self, nodes: int, rate_bps: float) -> float:
        """The part of the exchanges in which frames left every node at its link's rate. Above 1, or close to it, the
        links set the pace; far below, the machine does."""
        return self.traffic.wire * 8 / (nodes * rate_bps) / self.exchange_s

    def as_json(self, exact: RunReport) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.traffic.ratio, "speed_up": self.speed_up(exact)}


def print_report(
    data: str, plan: TrainingPlan, nodes: int, link: Mapping[str, str], reports: Sequence[RunReport]
) -> None:
    """Prints the table, and one line in words about each compressed run."""
    console = Console(markup=False)
    if not console.is_terminal:
        console = Console(width=_WIDTH, markup=False)
    console.print(
        f"\nHDC on {data}: {nodes} nodes exchange gradients over a ring; links: {links(link)}.\n"
        f"{plan.steps} steps of {nodes} x {plan.batch} samples; same starting weights and batches in every run.\n",
        highlight=False,
    )
    busy = [report.links_busy(nodes, rate_bps(link["rate"])) for report in reports] if "rate" in link else []
    console.print(_table(reports, busy))
    exact, *compressed = reports
    for report in compressed:
        console.print(_in_words(report, exact), highlight=False)
    if busy and min(busy) < _IDLE:
        console.print(
            f"Where the links are mostly idle, the {nodes} ranks and {nodes} NICs that share this machine's "
            f"{os.cpu_count()} cores set the pace, not the network: slower links (--rate) show what bytes cost.",
            highlight=False,
        )


def _table(reports: Sequence[RunReport], busy: Sequence[float]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("gradients", no_wrap=True)
    for heading in ("accuracy", "bytes before", "after", "ratio", "exchange time", "speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    if busy:
        table.add_column("links busy", justify="right", no_wrap=True)
    for index, report in enumerate(reports):
        table.add_row(
            report.codec,
            f"{report.accuracy:.2%}",
            text_bytes(report.traffic.original),
            text_bytes(report.traffic.payload),
            f"{report.traffic.ratio:.2f}",
            f"{report.exchange_s:.2f} s",
            f"{report.speed_up(reports[0]):.2f}x",
            *([f"{busy[index]:.0%}"] if busy else []),
        )
    return table


def _in_words(report: RunReport, exact: RunReport) -> str:
    points = 100 * (report.accuracy - exact.accuracy)
    ratio, speed_up = report.traffic.ratio, report.speed_up(exact)
    return f"{report.codec}: bytes / {ratio:.1f}, exchange speed x {speed_up:.1f}, accuracy {points:+.2f} points."
