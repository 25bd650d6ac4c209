"""What codecs do to real gradients and weights: those of the models of `softnic compare` while they are trained.

python -m benchmarks.training_data [--model transformer ...] [--codec rht:4 ...] [--markdown] [--json FILE]

Each model is trained alone with exact gradients and the plan of `softnic compare`. The error of a codec is the mean
square of its errors, as a part of the gradients' mean square, of ten gradients of the run each; lossless codecs have
the weights after it, also as bfloat16.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np

from benchmarks import harness
from softnic import codecs
from softnic.experiments import torch_models
from softnic.experiments.compare.plan import SHORT, Training
from softnic.experiments.data import Floats, batches_of_rank
from softnic.experiments.strategies import BulkAllreduce
from softnic.experiments.torch_replica import TorchReplica
from softnic.experiments.trainer import TrainingLoop
from softnic.measure.progress import as_measured
from softnic.measure.report import Column, MeasurementError, MeasurementReport, Progress, figure

GRADIENTS = "gradients"
WEIGHTS = "weights"
BFLOAT16 = "weights, bfloat16"
LOSSY = ("rht:3", "rht:4", "rht:5", "rht:6", "bounded:10", "bfp:7", "mx:e4m3", "mx:e2m1")
LOSSLESS = {WEIGHTS: "exact:32", BFLOAT16: "exact:16"}
LOOKS = 10
"""Gradients kept of a training."""
_SEED = 7


@dataclass(frozen=True)
class TrainingDataSettings:
    models: tuple[str, ...] = torch_models.NAMES
    codecs: tuple[str, ...] = LOSSY
    steps: int | None = None
    """Of each training; None: as in the plan."""


@dataclass(frozen=True)
class TrainingDataRow:
    model: str
    data: str
    codec: str
    ratio: float
    """Bytes before to bytes after."""
    error: float
    """Mean square of the errors, of the data's mean square; the mean over the gradients kept."""


@dataclass
class Kept:
    """What a training leaves."""

    weights: Floats
    gradients: list[Floats] = field(default_factory=list)


def train(name: str, plan: Training, steps: int) -> Kept:
    """Train a model alone and keep LOOKS gradients, equally far apart."""
    data = torch_models.data(name)
    replica = TorchReplica(torch_models.build(name), plan.rate_at, plan.momentum)
    kept = Kept(replica.parameters)
    keep = BulkAllreduce(replica, lambda: kept.gradients.append(replica.gradients.copy()))
    skip = BulkAllreduce(replica, lambda: None)
    looks = {round(steps * (look + 1) / LOOKS) for look in range(LOOKS)}
    batches = batches_of_rank(data.train_inputs, data.train_labels, 0, 1, plan.batch, _SEED)
    for step in range(1, steps + 1):
        TrainingLoop(replica, keep if step in looks else skip, batches).step()
    return kept


def bfloat16(values: Floats) -> Floats:
    """Return the values rounded to bfloat16, half to even, two a word."""
    words = values[: values.size // 2 * 2].view(np.uint32)
    rounded = words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16).view(np.float32)


def error_of(codec: codecs.Codec, given: Floats) -> float:
    exact = given.astype(np.float64)
    return float(((codec.roundtrip(given) - exact) ** 2).sum() / (exact**2).sum())


def rows_of(model: str, kept: Kept, names: tuple[str, ...]) -> Iterator[TrainingDataRow]:
    for name in names:
        codec = codecs.get(name)
        before = sum(gradient.nbytes for gradient in kept.gradients)
        after = sum(len(codec.encode(gradient)) for gradient in kept.gradients)
        errors = [error_of(codec, gradient) for gradient in kept.gradients]
        yield TrainingDataRow(model, GRADIENTS, name, before / after, float(np.mean(errors)))
    for data, name in LOSSLESS.items():
        given = bfloat16(kept.weights) if data == BFLOAT16 else kept.weights
        body = codecs.get(name).encode(given)
        if codecs.get(name).decode(body, given.size).tobytes() != given.tobytes():
            raise MeasurementError(f"{name} did not keep every bit of the {data} of {model}; this is a bug")
        yield TrainingDataRow(model, data, name, given.nbytes / len(body), 0.0)


def columns() -> list[Column[TrainingDataRow]]:
    return [
        Column("model", lambda row: row.model, left=True),
        Column("data", lambda row: row.data, left=True),
        Column("codec", lambda row: row.codec, left=True),
        Column("ratio", lambda row: figure(row.ratio)),
        Column("error", lambda row: figure(row.error, ".2g")),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    default = TrainingDataSettings()
    models, names = ", ".join(default.models), ", ".join(default.codecs)
    parser.add_argument("--model", action="append", choices=default.models, help=f"may be repeated ({models})")
    parser.add_argument("--codec", action="append", type=codecs.get, help=f"may be repeated ({names})")
    parser.add_argument("--steps", type=int, help="of each training, at least 10 (as in the plan of softnic compare)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[TrainingDataRow]]:
    default = TrainingDataSettings()
    settings = TrainingDataSettings(
        tuple(given.model or default.models), tuple(map(str, given.codec or default.codecs)), given.steps
    )
    rows: list[TrainingDataRow] = []
    for model in settings.models:
        plan = SHORT[model]
        steps = max(LOOKS, settings.steps or plan.steps)
        progress(f"{model}, {steps} steps")
        rows += as_measured(rows_of(model, train(model, plan, steps), settings.codecs), columns(), progress)
    return [MeasurementReport("training_data", "Codecs on data of trainings", columns(), rows, asdict(settings))]


if __name__ == "__main__":
    sys.exit(harness.main("training_data", __doc__, measured, add_options))
