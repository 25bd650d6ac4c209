"""Tables of a model's methods over links of several rates: accuracy, bytes, and time to the exact training's score."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from softnic.experiments import torch_models
from softnic.experiments.compare.advice import change, score
from softnic.experiments.compare.results import TrainingResult
from softnic.experiments.compare.summary import RATES, MethodSummary, is_peer, summaries
from softnic.measure.report import Column, MeasurementReport, figure
from softnic.measure.spread import Spread
from softnic.units import rate_bps, text_rate, text_time

DIVERGED = "diverged"


@dataclass(frozen=True, kw_only=True)
class LinkRow:
    """One method: means over seeds."""

    method: str
    seeds: int
    score: Spread | None
    """None: a training diverged."""
    change: Spread | None
    """Against the exact training of the same seed."""
    ratio: float
    last_ratio: float
    seconds: Mapping[str, float | None]
    """Until the mean over the seeds reached the exact trainings', less half a point or 0.01 bits, by rate; None: never.
    """
    step_s: Mapping[str, float]
    """Mean time of a step, by rate."""
    times_peer: Mapping[str, float | None]
    """The time of the best of fp16, bf16 and PowerSGD with the same seeds divided by this."""


def rows(methods: Sequence[MethodSummary], rates: Sequence[str] = RATES) -> list[LinkRow]:
    """Return a row for each method."""
    made = []
    for each in methods:
        seconds = {rate: each.seconds_to_score(rate_bps(rate)) for rate in rates}
        row = LinkRow(
            method=each.method,
            seeds=len(each.seeds),
            score=each.score,
            change=each.change,
            ratio=each.ratio,
            last_ratio=each.last_ratio,
            seconds=seconds,
            step_s={rate: each.step_seconds(rate_bps(rate)) for rate in rates},
            times_peer={rate: _times(best_peer(methods, rate_bps(rate), each.seeds), seconds[rate]) for rate in rates},
        )
        made.append(row)
    return made


def best_peer(methods: Sequence[MethodSummary], rate: float, seeds: Collection[int]) -> float | None:
    """Return the time of the soonest of PyTorch's hooks with these seeds over links of `rate` bits per second.

    None: none reached the score.
    """
    peers = [peer for each in methods if is_peer(each.method) and (peer := each.only(seeds)) is not None]
    return min((seconds for peer in peers if (seconds := peer.seconds_to_score(rate)) is not None), default=None)


def _times(peer_s: float | None, seconds: float | None) -> float | None:
    return None if peer_s is None or seconds is None else peer_s / seconds


def report(model: str, results: Sequence[TrainingResult], rates: Sequence[str] = RATES) -> MeasurementReport[LinkRow]:
    """Return the table of a model; no rows without an exact training."""
    title = f"{model}: time to the exact training's score, computed for links of other rates"
    return MeasurementReport(
        "compare-links", title, columns(model, rates), rows(summaries(results, model), rates), {}, [NOTE]
    )


NOTE = (
    "Times: until the mean score over the seeds is that of the exact trainings at the end, less half a point or 0.01 "
    "bits, with every host and NIC on a core of its own: CPU time of the busiest host and the bytes of the busiest "
    "link at this rate, nothing overlapping. In brackets: the time of the best of fp16, bf16 and PowerSGD divided by "
    "it. Where the score is never reached: the time of a step."
)


def columns(model: str, rates: Sequence[str]) -> list[Column[LinkRow]]:
    heading = "bits/character" if torch_models.reads_text(model) else "accuracy"
    return [
        Column("method", lambda row: row.method, left=True),
        Column(heading, lambda row: DIVERGED if row.score is None else score(model, row.score)),
        Column("change", lambda row: "" if row.change is None else change(model, row.change)),
        Column("ratio", lambda row: figure(row.ratio, ".1f")),
        Column("at the end", lambda row: figure(row.last_ratio, ".1f")),
        Column("seeds", lambda row: str(row.seeds)),
        *(Column(text_rate(rate_bps(rate)), lambda row, rate=rate: _cell(row, rate)) for rate in rates),  # type: ignore[misc]
    ]


def _cell(row: LinkRow, rate: str) -> str:
    seconds, times = row.seconds[rate], row.times_peer[rate]
    if seconds is None:
        return f"[{text_time(row.step_s[rate])} a step]"
    return f"{seconds:.1f} s" + ("" if times is None else f" ({times:.2f})")
