"""Gradients of real training steps: of the digit classifier, and with torch of the networks of full size.

Each model is trained on the digits that are available. Its gradients are kept at two stages: early, when they are no
longer those of the initial weights, and late. They are the mean over the paper's batch of one worker, accumulated from
smaller batches where memory is short. The cache holds them, hundreds of MB per model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.papers import cache, networks
from benchmarks.papers.inceptionn import digits, paper
from benchmarks.papers.learner import enlarged_batches
from softnic.experiments.data import DataSet, Floats
from softnic.experiments.strategies import BulkAllreduce
from softnic.experiments.torch_replica import TorchReplica
from softnic.experiments.trainer import TrainingLoop
from softnic.measure.report import Progress

_VERSION = 1
"""To be raised when the same settings give other gradients."""


@dataclass(frozen=True)
class GradientSettings:
    """How gradients are made, and everything that `--quick` changes about it."""

    early: int = 10
    """Steps before the first stage."""
    late: int = 100
    """Steps before the second stage; if equal to `early`, there is one stage."""
    hdc_early: int = 100
    hdc_late: int = 2000
    batch: int | None = None
    """Samples of a stage's gradients; None for the paper's batch."""
    small: int | None = None
    """Samples of a training step; None for what a few GB of memory and two cores do in about two seconds."""
    classes: int = 1000
    side: int = 224
    seed: int = 7


QUICK = GradientSettings(early=1, late=1, hdc_early=10, hdc_late=30, batch=2, small=2, classes=10)
_SMALL = {"alexnet": 16, "resnet50": 8, "vgg16": 4}


@dataclass(frozen=True)
class Stage:
    """A model's gradients at one time of its training."""

    model: str
    step: int
    """Optimizer steps taken before."""
    loss: float
    batch: int
    floats: Floats
    """Read-only; may be mapped from a file."""

    @property
    def title(self) -> str:
        return f"step {self.step}"


def stages(model: str, data: DataSet, settings: GradientSettings, progress: Progress) -> list[Stage]:
    """Return the stages of a model, from the cache or made now. Raises ImportError without torch, except for `hdc`."""
    at = sorted({settings.hdc_early, settings.hdc_late} if model == "hdc" else {settings.early, settings.late})
    fields = {**asdict(settings), "version": _VERSION, "small of": _SMALL.get(model)}
    directory = cache.cache_directory() / cache.key(model, data, fields)
    found = [_read(model, directory, step) for step in at]
    if not all(found):
        for made in (_of_digits if model == "hdc" else _of_network)(model, data, settings, at, progress):
            _write(directory, made)
        found = [_read(model, directory, step) for step in at]
    return [stage for stage in found if stage is not None]


def small_batch(model: str, settings: GradientSettings) -> int:
    """Return the samples of a training step of a network on this machine."""
    return settings.small or _SMALL[model]


def _of_digits(
    _model: str, data: DataSet, settings: GradientSettings, at: list[int], progress: Progress
) -> Iterator[Stage]:
    """Yield gradients of worker 0 at the paper's batch."""
    plan = digits.plan(at[-1] + 1, settings.seed)
    workers = digits.HdcWorkers(data, plan)
    for step in workers.steps(plan.steps):
        before = step - 1
        if before % 50 == 0:
            progress(f"HDC: training step {before} of {at[-1]} for gradients")
        if before in at:
            yield Stage("hdc", before, workers.loss, plan.batch, workers.gradients[0].copy())


def _of_network(
    model: str, data: DataSet, settings: GradientSettings, at: list[int], progress: Progress
) -> Iterator[Stage]:
    published = paper.TRAINING[model]
    small = small_batch(model, settings)
    parts = max(1, (settings.batch or published.batch) // small)
    # The paper's rate is for a batch of all its workers; in proportion for a smaller one (Goyal et al., 2017).
    rate = published.rate * small / (published.batch * paper.WORKERS)
    network = networks.build(model, settings.classes, settings.seed)
    replica = TorchReplica(network, lambda _step: rate, published.momentum, published.weight_decay)
    draws = enlarged_batches(data, small, settings.seed, settings.side)
    training = TrainingLoop(replica, BulkAllreduce(replica, lambda: None), draws)
    for step in range(at[-1] + 1):
        if step in at:
            progress(f"{paper.TITLES[model]}: gradients of {parts * small} samples after {step} steps")
            loss = replica.accumulate(list(islice(draws, parts)))
            yield Stage(model, step, loss, parts * small, replica.gradients.copy())
        if step < at[-1]:
            progress(f"{paper.TITLES[model]}: training step {step + 1} of {at[-1]} for gradients")
            training.step()


def _read(model: str, directory: Path, step: int) -> Stage | None:
    try:
        about = json.loads((directory / f"{step}.json").read_text())
        floats = np.load(directory / f"{step}.npy", mmap_mode="r")
        return Stage(model, step, float(about["loss"]), int(about["batch"]), floats)
    except (OSError, ValueError, LookupError, TypeError, EOFError, RecursionError):
        return None


def _write(directory: Path, stage: Stage) -> None:
    """The JSON file is written last: without it, a stage is not in the cache."""
    about = json.dumps({"loss": stage.loss, "batch": stage.batch})
    cache.write_whole(directory / f"{stage.step}.npy", lambda path: np.save(path, stage.floats))
    cache.write_whole(directory / f"{stage.step}.json", lambda path: path.write_text(about))
