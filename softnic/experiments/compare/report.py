"""Report of a comparison: one table and picture per model, JSON, and every evaluation as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from softnic.experiments import torch_models
from softnic.experiments.compare.link_report import DIVERGED
from softnic.experiments.compare.plan import ComparisonPlan
from softnic.experiments.compare.results import TrainingResult
from softnic.experiments.compare.run import Comparison
from softnic.experiments.compare.summary import ALLOWED_BITS, ALLOWED_POINTS, REFERENCE, last_bytes
from softnic.experiments.compare.training import Evaluation
from softnic.measure.plot import Curves, draw
from softnic.measure.report import (
    Column,
    MeasurementReport,
    column,
    columns,
    figure,
    finite,
    links,
    machine,
    milliseconds,
    write_csv,
)
from softnic.units import text_bytes

CURVES = "curves.csv"
SUMMARY = "summary.csv"


@dataclass(frozen=True, kw_only=True)
class TrainingRow:
    """One training, compared with the exact one. Fields that were not measured are None."""

    model: str
    method: str = column("method")
    seed: int = column("seed")
    score: float | None
    """At the end: accuracy, or bits per character. None: the training diverged."""
    score_change: float | None
    loss: float | None
    """Of the last interval between evaluations."""
    wire_bytes: int = column("bytes on the wire", text_bytes)
    ratio: float | None = column("ratio", ".1f")
    """Bytes on the wire, the exact training's to this one's."""
    last_ratio: float | None = column("at the end", ".1f")
    """The same in the last interval, after methods have warmed up."""
    train_s: float = column("training s", ".1f")
    to_exact_s: float | None = column("s to exact's", ".1f")
    """Training time until an evaluation shows the score at the end of the exact training, less half a point or 0.01
    bits. None: never."""
    speed_up: float | None = column("speed-up")
    step_s: float = column("step ms", milliseconds)
    """Mean."""
    exchange_s: float = column("exposed exchange", milliseconds)
    """Exposed, mean per step."""
    cpu_s: float = column("CPU", lambda seconds: f"{1000 * seconds:.0f}")
    """Of all ranks and NICs, mean per step."""


def rows(results: Sequence[TrainingResult], model: str) -> list[TrainingRow]:
    """Return one model's rows, in the order of the results."""
    found = [result for result in results if result.model == model]
    exact = {result.seed: result for result in found if result.method == REFERENCE}
    return [_row(result, exact.get(result.seed)) for result in found]


def _row(result: TrainingResult, reference: TrainingResult | None) -> TrainingRow:
    last = result.last
    score = None if result.diverged else last.score
    against = None if reference is None or reference.diverged else reference.last.score
    return TrainingRow(
        model=result.model,
        method=result.method,
        seed=result.seed,
        score=score,
        score_change=None if score is None or against is None else score - against,
        loss=None if result.diverged else last.loss,
        wire_bytes=last.wire_bytes,
        ratio=None if reference is None else reference.last.wire_bytes / last.wire_bytes,
        last_ratio=None if reference is None else last_bytes(reference) / last_bytes(result),
        train_s=last.train_s,
        to_exact_s=None if against is None else _seconds_to(result, against),
        speed_up=None if reference is None else reference.last.train_s / last.train_s,
        step_s=last.train_s / last.step,
        exchange_s=last.exchange_s / last.step,
        cpu_s=last.cpu_s / last.step,
    )


def _seconds_to(result: TrainingResult, score: float) -> float | None:
    """Return the training time at the first evaluation that is about as good as `score`; None: none is."""
    text = torch_models.reads_text(result.model)
    for look in result.evaluations:
        if look.score <= score + ALLOWED_BITS if text else look.score >= score - ALLOWED_POINTS:
            return look.train_s
    return None


def report(comparison: Comparison, model: str) -> MeasurementReport[TrainingRow]:
    """Return the table of a model."""
    plan = comparison.plan
    failed = [
        f"{each.method}, seed {each.seed}, failed: {each.why}" for each in comparison.failures if each.model == model
    ]
    settings = {"model": model, **asdict(plan.trainings[model]), "workers": plan.workers, "link": dict(plan.link)}
    return MeasurementReport(
        "compare",
        _title(plan, model),
        _columns(model),
        rows(comparison.results, model),
        settings,
        [*failed, _note(model)],
    )


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return settings, a row and all evaluations of each training, and the failures."""
    plan = comparison.plan
    return {
        "machine": machine(),
        "settings": {**asdict(plan), "trainings": {name: asdict(each) for name, each in plan.trainings.items()}},
        "results": [asdict(row) for model in plan.trainings for row in rows(comparison.results, model)],
        "looks": [
            {"model": result.model, "method": result.method, "seed": result.seed, **finite(asdict(look))}
            for result in comparison.results
            for look in result.evaluations
        ],
        "failures": [asdict(failure) for failure in comparison.failures],
    }


def write(comparison: Comparison, directory: Path, *, pictures: bool) -> list[Path]:
    """Write a CSV file of trainings, one of evaluations, and a picture per model. Raises OSError, ImportError."""
    content = as_json(comparison)
    paths = []
    for name, kind, keys in ((SUMMARY, TrainingRow, ()), (CURVES, Evaluation, ("model", "method", "seed"))):
        headings = [*keys, *(each.name for each in fields(kind))]
        paths.append(directory / name)
        found = content["results" if kind is TrainingRow else "looks"]
        write_csv(paths[-1], headings, [[row[heading] for heading in headings] for row in found])
    for model in comparison.plan.trainings if pictures else ():
        paths.append(directory / f"{model}.png")
        draw_curves(model, _first_seed(comparison, model), paths[-1])
    return paths


def _first_seed(comparison: Comparison, model: str) -> list[TrainingResult]:
    """Return a model's trainings of the first seed."""
    seed = comparison.plan.seeds[0]
    return [result for result in comparison.results if result.model == model and result.seed == seed]


def draw_curves(model: str, results: Sequence[TrainingResult], path: Path) -> None:
    """Draw the score over bytes on the wire and over time, one curve per method. Raises ImportError, OSError."""
    unit = "bits per character" if torch_models.reads_text(model) else "accuracy on the test set"
    by_bytes = {each.method: [(float(look.wire_bytes), look.score) for look in each.evaluations] for each in results}
    by_time = {each.method: [(look.train_s, look.score) for look in each.evaluations] for each in results}
    charts = [
        Curves("", "bytes on the wire, all NICs", unit, by_bytes, log=True),
        Curves("", "training time, s", unit, by_time),
    ]
    draw(model, charts, path, common_legend=True)


def _title(plan: ComparisonPlan, model: str) -> str:
    text = torch_models.reads_text(model)
    path, default = plan.data_of(model), "Python's language reference" if text else "digits"
    training = plan.trainings[model]
    return (
        f"{model} on {default if path is None else Path(path).name}: {plan.workers} ranks x {training.batch} samples, "
        f"{training.steps} steps; links: {links(plan.link)}"
    )


def _columns(model: str) -> list[Column[TrainingRow]]:
    if torch_models.reads_text(model):
        score = Column[TrainingRow]("bits/character", lambda row: figure(row.score, ".3f") or DIVERGED)
        change = Column[TrainingRow]("change", lambda row: figure(row.score_change or None, "+.3f"))
    else:
        score = Column("accuracy", lambda row: DIVERGED if row.score is None else f"{100 * row.score:.2f} %")
        change = Column("change", lambda row: f"{100 * row.score_change:+.2f}" if row.score_change else "")
    method, seed, *others = columns(TrainingRow)
    return [method, seed, score, change, *others]


def _note(model: str) -> str:
    better = "lower is better" if torch_models.reads_text(model) else "higher is better"
    return (
        f"Change: of the score ({better}) against {REFERENCE}'s. Bytes: all frames of all NICs in all steps. "
        "Ratio: the exact training's bytes to these, over all steps; at the end: over the last interval, after methods "
        "have warmed up. Seconds to exact's: training time until an evaluation shows the exact training's last score, "
        "less half a point or 0.01 bits; empty: never. Exposed exchange and CPU (of all ranks and NICs): per step, in "
        "ms. CPU divided by this machine's cores is the least time that a step takes here, on any links."
    )
