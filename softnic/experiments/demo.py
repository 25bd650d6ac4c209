"""Runs of `softnic demo`: INCEPTIONN's digit classifier with gradients exchanged exactly or by a codec.

Accuracy and time inside the exchanges come from the ranks, bytes from the NICs' counters before and after each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softnic.cluster.cluster import Cluster
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.train.run import run_training
from softnic.experiments.trainer import RankOutcome, TrainingPlan
from softnic.measure.report import Column, MeasurementReport, links
from softnic.units import rate_bps, text_bytes

EXACT = "exact"
_IDLE = 0.5
"""Links that are busy for a smaller share of the time do not limit a run."""


@dataclass(frozen=True)
class DemoRun:
    """One run over all ranks."""

    codec: str
    """Name of the codec, or `exact`."""
    accuracy: float
    loss: float
    exchange_s: float
    """Time inside the exchanges, of the rank that spent most."""
    total_s: float
    traffic: NicTraffic
    weights: str
    """Digest of the final weights, which all ranks share."""

    @classmethod
    def of(cls, codec: str, outcomes: Sequence[RankOutcome], traffic: NicTraffic) -> DemoRun:
        return cls(
            codec,
            outcomes[0].accuracy,
            sum(outcome.loss for outcome in outcomes) / len(outcomes),
            max(outcome.exchange_s for outcome in outcomes),
            max(outcome.total_s for outcome in outcomes),
            traffic,
            outcomes[0].weights,
        )

    def speed_up(self, exact: DemoRun) -> float:
        """Return how many times shorter the exchanges are."""
        return exact.exchange_s / self.exchange_s

    def links_busy(self, nodes: int, rate_bps: float) -> float:
        """Return the share of the exchanges in which every node sent frames at its link's rate.

        Near or above 1 the links limit the run; far below, the machine does.
        """
        return self.traffic.wire * 8 / (nodes * rate_bps) / self.exchange_s

    def as_json(self, exact: DemoRun) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.traffic.ratio, "speed_up": self.speed_up(exact)}


def run(cluster: Cluster, codec: str, plan: TrainingPlan, data: Path, on_step: Callable[[int, float], None]) -> DemoRun:
    """Train over all nodes of a cluster by one codec. Raises MeasurementError."""
    before = NicTraffic.of(cluster)
    ranks = run_training(cluster, "inc" if codec == EXACT else f"inc+{codec}", plan, data, on_step)
    return DemoRun.of(codec, [rank.outcome for rank in ranks], NicTraffic.of(cluster) - before)


def report(
    data: str, plan: TrainingPlan, nodes: int, link: Mapping[str, str], runs: Sequence[DemoRun]
) -> MeasurementReport[DemoRun]:
    """Return the report of all runs, the exact one first."""
    exact, *compressed = runs
    rate = rate_bps(link["rate"]) if "rate" in link else None

    def busy(run: DemoRun) -> str:
        return "" if rate is None else f"{run.links_busy(nodes, rate):.0%}"

    columns: list[Column[DemoRun]] = [
        Column("gradients", lambda run: run.codec, left=True),
        Column("accuracy", lambda run: f"{run.accuracy:.2%}"),
        Column("bytes before", lambda run: text_bytes(run.traffic.original)),
        Column("after", lambda run: text_bytes(run.traffic.payload)),
        Column("ratio", lambda run: f"{run.traffic.ratio:.2f}"),
        Column("exchange time", lambda run: f"{run.exchange_s:.2f} s"),
        Column("speed-up", lambda run: f"{run.speed_up(exact):.2f}x"),
        Column("links busy", busy),
    ]
    notes = [_summary(run, exact) for run in compressed]
    if rate is not None and min(run.links_busy(nodes, rate) for run in runs) < _IDLE:
        notes.append(
            f"Where the links are mostly idle, the {nodes} ranks and {nodes} NICs on this machine's {os.cpu_count()} "
            "cores limit the run, not the network: slower links (--rate) show what bytes cost."
        )
    title = (
        f"HDC on {data}: {nodes} nodes exchange gradients over a ring; links: {links(link)}.\n"
        f"{plan.steps} steps of {nodes} x {plan.batch} samples; same initial weights and batches in every run."
    )
    return MeasurementReport("demo", title, columns, runs, {}, notes)


def _summary(run: DemoRun, exact: DemoRun) -> str:
    points = 100 * (run.accuracy - exact.accuracy)
    ratio, speed_up = run.traffic.ratio, run.speed_up(exact)
    return f"{run.codec}: bytes / {ratio:.1f}, exchange speed x {speed_up:.1f}, accuracy {points:+.2f} points."
