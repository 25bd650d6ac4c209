"""What a comparison found, for people and programs: a table a model, and every look as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from softnic.experiments import torch_models
from softnic.experiments.compare.learn import Look
from softnic.experiments.compare.plan import Plan, Training
from softnic.experiments.compare.results import Result, numbers
from softnic.experiments.compare.run import Comparison
from softnic.experiments.report import Column, Report, figure, links, machine
from softnic.units import text_bytes

REFERENCE = "exact"
"""The method that the others are held against."""
DIVERGED = "diverged"
CURVES = "curves.csv"
SUMMARY = "summary.csv"


@dataclass(frozen=True)
class Row:
    """One training, and how it compares with the exact one; None where that was not measured."""

    model: str
    method: str
    score: float | None
    """At the end: accuracy, or bits per character; None where the training diverged."""
    score_change: float | None
    loss: float | None
    """Of the steps since the last look but one."""
    wire_bytes: int
    ratio: float | None
    """Bytes on the wire: the exact training's in this one's."""
    last_ratio: float | None
    """The same since the last look but one, when warming up is over."""
    train_s: float
    speed_up: float | None
    step_s: float
    """Mean."""
    exchange_s: float
    """Exposed, of a step; mean."""
    cpu_s: float
    """Of all ranks and NICs, a step; mean."""


def rows(results: Sequence[Result], model: str) -> list[Row]:
    """Of one model, in the order of the results."""
    found = [result for result in results if result.model == model]
    reference = next((result for result in found if result.method == REFERENCE), None)
    return [_row(result, reference) for result in found]


def _row(result: Result, reference: Result | None) -> Row:
    last = result.last
    score = None if result.diverged else last.score
    against = None if reference is None or reference.diverged else reference.last.score
    return Row(
        model=result.model,
        method=result.method,
        score=score,
        score_change=None if score is None or against is None else score - against,
        loss=None if result.diverged else last.loss,
        wire_bytes=last.wire_bytes,
        ratio=None if reference is None else reference.last.wire_bytes / last.wire_bytes,
        last_ratio=None if reference is None else _last_bytes(reference) / _last_bytes(result),
        train_s=last.train_s,
        speed_up=None if reference is None else reference.last.train_s / last.train_s,
        step_s=last.train_s / last.step,
        exchange_s=last.exchange_s / last.step,
        cpu_s=last.cpu_s / last.step,
    )


def _last_bytes(result: Result) -> int:
    before = result.looks[-2].wire_bytes if len(result.looks) > 1 else 0
    return result.last.wire_bytes - before


def report(comparison: Comparison, model: str) -> Report[Row]:
    """The table of a model."""
    plan = comparison.plan
    training = plan.trainings[model]
    failed = [f"{each.method} failed: {each.why}" for each in comparison.failures if each.model == model]
    return Report(
        "compare",
        _title(plan, model, training),
        _columns(model),
        rows(comparison.results, model),
        _settings(plan, model),
        [*failed, *_notes(model)],
    )


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything: settings, a row and all looks a training, what failed."""
    plan = comparison.plan
    return {
        "machine": machine(),
        "settings": {**asdict(plan), "trainings": {name: asdict(each) for name, each in plan.trainings.items()}},
        "results": [asdict(row) for model in plan.trainings for row in rows(comparison.results, model)],
        "looks": [
            {"model": result.model, "method": result.method, **numbers(asdict(look))}
            for result in comparison.results
            for look in result.looks
        ],
        "failures": [asdict(each) for each in comparison.failures],
    }


def write_csv(comparison: Comparison, directory: Path) -> list[Path]:
    """A row a training, and one a look. Raises OSError."""
    summary = [asdict(row) for model in comparison.plan.trainings for row in rows(comparison.results, model)]
    curves = as_json(comparison)["looks"]
    names = [each.name for each in fields(Row)], ["model", "method", *(each.name for each in fields(Look))]
    paths = [directory / SUMMARY, directory / CURVES]
    for path, columns, content in zip(paths, names, (summary, curves), strict=True):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(content)
    return paths


def _title(plan: Plan, model: str, training: Training) -> str:
    path, usual = (
        (plan.text, "Python's language reference") if torch_models.reads_text(model) else (plan.images, "digits")
    )
    return (
        f"{model} on {usual if path is None else Path(path).name}: {plan.workers} ranks x {training.batch} samples, "
        f"{training.steps} steps; links: {links(plan.link)}"
    )


def _columns(model: str) -> list[Column[Row]]:
    text = torch_models.reads_text(model)
    score = Column[Row]("bits/character", lambda row: figure(row.score, ".3f") or DIVERGED)
    change = Column[Row]("change", lambda row: figure(row.score_change, "+.3f") if row.score_change else "")
    if not text:
        score = Column("accuracy", lambda row: DIVERGED if row.score is None else f"{100 * row.score:.2f} %")
        change = Column("change", lambda row: f"{100 * row.score_change:+.2f}" if row.score_change else "")
    return [
        Column("method", lambda row: row.method, left=True),
        score,
        change,
        Column("bytes on the wire", lambda row: text_bytes(row.wire_bytes)),
        Column("ratio", lambda row: figure(row.ratio, ".1f")),
        Column("at the end", lambda row: figure(row.last_ratio, ".1f")),
        Column("training s", lambda row: figure(row.train_s, ".1f")),
        Column("speed-up", lambda row: figure(row.speed_up)),
        Column("step ms", lambda row: figure(1000 * row.step_s, ".1f")),
        Column("exposed exchange", lambda row: figure(1000 * row.exchange_s, ".1f")),
        Column("CPU", lambda row: figure(1000 * row.cpu_s, ".0f")),
    ]


def _settings(plan: Plan, model: str) -> Mapping[str, Any]:
    return {"model": model, **asdict(plan.trainings[model]), "workers": plan.workers, "link": dict(plan.link)}


def _notes(model: str) -> list[str]:
    better = "fewer are better" if torch_models.reads_text(model) else "more is better"
    return [
        f"Change: of the score ({better}) against {REFERENCE}'s. Bytes: of all frames that all NICs sent in all steps. "
        "Ratio: the exact training's bytes to these, over all steps; at the end: over the last part of them, where "
        "methods that warm up have done so. Exposed exchange and CPU (of all ranks and "
        "NICs): of a step, in ms. CPU over this machine's cores is the least that a step takes here, on any links.",
    ]
