"""Gradients of real training steps: of the digit classifier, and of the networks in models.py where torch is.

Each model is trained on the digits there are, and its gradients are kept at two stages: early, when they are no longer
those of the first weights, and late. A stage's gradients are the mean over the paper's batch of one worker, put
together from smaller batches where memory is short. They are cached, hundreds of MB a model, in
$XDG_CACHE_HOME/softnic/experiments/reproduce (~/.cache/...), and made again after any change of what they depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from softnic.experiments.data import DataSet, Floats, batches
from softnic.experiments.report import Progress
from softnic.experiments.reproduce.inceptionn import digits, paper

_VERSION = 1
"""Of what is cached; to be raised when the same settings give other gradients."""


@dataclass(frozen=True)
class Settings:
    """How gradients are made. What a run of `--quick` changes is here, and nothing else is."""

    early: int = 10
    """Steps before the first stage."""
    late: int = 100
    """Steps before the second; the first again means that there is one stage only."""
    hdc_early: int = 100
    hdc_late: int = 2000
    batch: int | None = None
    """Samples of a stage's gradients; None: the paper's batch."""
    small: int | None = None
    """Samples of a step before; None: what _SMALL says."""
    classes: int = 1000
    side: int = 224
    seed: int = 7


QUICK = Settings(early=1, late=1, hdc_early=10, hdc_late=30, batch=2, small=2, classes=10)

_SMALL = {"alexnet": 16, "resnet50": 8, "vgg16": 4}
"""Samples of a training step that a few GB of memory and two cores do in about two seconds."""


@dataclass(frozen=True)
class Stage:
    """A model's gradients at one time of its training."""

    model: str
    step: int
    """Optimizer steps done before."""
    loss: float
    batch: int
    floats: Floats
    """May be mapped from a file; not to be written to."""

    @property
    def title(self) -> str:
        return f"step {self.step}"


def stages(model: str, data: DataSet, settings: Settings, progress: Progress) -> list[Stage]:
    """The stages of a model, from the cache or made now. Raises ImportError where torch is needed and not there."""
    at = sorted({settings.hdc_early, settings.hdc_late} if model == "hdc" else {settings.early, settings.late})
    directory = cache_directory() / _key(model, data, settings)
    found = [_read(model, directory, step) for step in at]
    if all(found):
        return [stage for stage in found if stage is not None]
    make = _of_digits if model == "hdc" else _of_network
    directory.mkdir(parents=True, exist_ok=True)
    for made in make(model, data, settings, at, progress):
        _write(directory, made)
    return [stage for step in at if (stage := _read(model, directory, step)) is not None]


def small_batch(model: str, settings: Settings) -> int:
    """Samples of a training step of a network here."""
    return settings.small or _SMALL[model]


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "softnic" / "reproduce"


def _of_digits(_model: str, data: DataSet, settings: Settings, at: list[int], progress: Progress) -> Iterator[Stage]:
    """Of worker 0, at the paper's batch."""
    kept: list[Stage] = []

    def on_step(step: int, given: list[Floats]) -> None:
        if step % 50 == 0:
            progress(f"HDC: training step {step} of {at[-1]} for gradients")
        if step in at:
            kept.append(Stage("hdc", step, float("nan"), plan.batch, given[0].copy()))

    plan = digits.Plan(at[-1] + 1, seed=settings.seed)
    losses = digits.train(data, plan, on_step=on_step).losses
    for stage in kept:
        yield Stage("hdc", stage.step, losses[stage.step], stage.batch, stage.floats)


def _of_network(model: str, data: DataSet, settings: Settings, at: list[int], progress: Progress) -> Iterator[Stage]:
    from softnic.experiments.reproduce import networks

    given = paper.TRAINING[model]
    small = small_batch(model, settings)
    large = settings.batch or given.batch
    # The paper's rate is for a batch of all its workers; in proportion for a smaller one (Goyal et al., 2017).
    rate = given.rate * small / (given.batch * paper.WORKERS)
    network = networks.build(model, settings.classes, settings.seed)
    trainer = networks.Trainer(network, rate, given.momentum, given.weight_decay)
    draws = batches(len(data.train_labels), small, np.random.default_rng(settings.seed))

    def batch() -> networks.Batch:
        drawn = next(draws)
        return networks.enlarged(data.train_inputs[drawn], data.train_labels[drawn], settings.side)

    for step in range(at[-1] + 1):
        if step in at:
            progress(f"{paper.TITLES[model]}: gradients of {large} samples after {step} steps")
            loss, floats = trainer.accumulated([batch() for _ in range(max(1, large // small))])
            yield Stage(model, step, loss, max(1, large // small) * small, floats)
        if step < at[-1]:
            progress(f"{paper.TITLES[model]}: training step {step + 1} of {at[-1]} for gradients")
            trainer.step(*batch())


def _key(model: str, data: DataSet, settings: Settings) -> str:
    """Names a directory after all that the gradients depend on."""
    sample = hashlib.sha256(data.train_inputs[:100].tobytes() + data.train_labels.tobytes())
    fields = {**asdict(settings), "version": _VERSION, "data": sample.hexdigest(), "small of": _SMALL.get(model)}
    return f"{model}-{hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]}"


def _read(model: str, directory: Path, step: int) -> Stage | None:
    try:
        told = json.loads((directory / f"{step}.json").read_text())
        floats = np.load(directory / f"{step}.npy", mmap_mode="r")
        return Stage(model, step, float(told["loss"]), int(told["batch"]), floats)
    except (OSError, ValueError, KeyError):
        return None


def _write(directory: Path, stage: Stage) -> None:
    """The JSON comes last, and both come whole: a run that is ended leaves nothing that would be believed."""
    floats, about = directory / f"{stage.step}.npy", directory / f"{stage.step}.json"
    part = directory / f"{stage.step}.{os.getpid()}.npy"
    np.save(part, stage.floats)
    part.replace(floats)
    part = part.with_suffix(".json")
    part.write_text(json.dumps({"loss": stage.loss, "batch": stage.batch}))
    part.replace(about)
