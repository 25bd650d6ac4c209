"""Plans of comparisons: models, methods and seeds, how long each model is trained, and on which links.

All methods of a model start from the same weights, use the same samples in the same order on each rank, the same
optimizer (SGD with momentum) and the same learning rates: rising to `rate` over the first twentieth of the steps, then
falling to zero along a cosine (Loshchilov and Hutter, 2017). Rates are not tuned for any method: the comparison shows
what becomes of an existing training.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from softnic.experiments import photos, torch_models

LEARN_PHOTOGRAPHS = ("resnet",)
"""Models that learn softnic.experiments.photos; the others learn text or digits."""
_RISING_SHARE = 0.05


@dataclass(frozen=True)
class Training:
    """Schedule of a model's training."""

    batch: int
    """Samples per rank and step."""
    steps: int
    rate: float
    """The highest learning rate."""
    looks: int
    """Number of evaluations on the test set, after equal parts of the steps; the last one is at the end."""
    momentum: float = 0.9

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        rising = max(1, round(self.steps * _RISING_SHARE))
        if step < rising:
            return self.rate * (step + 1) / rising
        done = (step - rising) / max(1, self.steps - rising)
        return self.rate * (1 + math.cos(math.pi * done)) / 2

    def linear_rate_at(self, step: int) -> float:
        """Return the learning rate of a step that falls linearly to zero instead."""
        return self.rate * (1 - step / self.steps)

    def evaluated_after(self) -> list[int]:
        """Return the numbers of steps after which the model is evaluated."""
        count = min(self.looks, self.steps)
        return [round(self.steps * (index + 1) / count) for index in range(count)]


FULL: Mapping[str, Training] = {
    "hdc": Training(batch=25, steps=1500, rate=0.05, looks=15),
    "convnet": Training(batch=32, steps=1000, rate=0.05, looks=10),
    "resnet": Training(batch=32, steps=800, rate=0.05, looks=10),
    "transformer": Training(batch=8, steps=2000, rate=0.2, looks=10),
}
"""With four workers 2.1 to 2.5 passes over MNIST, five over the photographs, and ten over the language reference."""
SHORT: Mapping[str, Training] = {
    "hdc": replace(FULL["hdc"], steps=300, looks=5),
    "convnet": replace(FULL["convnet"], steps=250, looks=5),
    "resnet": replace(FULL["resnet"], steps=200, looks=5),
    "transformer": replace(FULL["transformer"], steps=300, looks=5),
}
QUICK: Mapping[str, Training] = {name: Training(2, 6, training.rate, 2) for name, training in FULL.items()}
"""A smoke test, too short to learn anything."""


def _methods(full: int, learn: int, interval: int) -> tuple[str, ...]:
    """Return one method of each kind. Sparse methods send one gradient in a hundred.

    `full`: steps before DGC and LGC become sparse; `learn`: steps in which LGC's autoencoder learns; `interval`: steps
    between two changes of an adaptive weight precision.
    """
    lgc = f"0.01,full={full},learn={learn},momentum=0.9"
    return (
        *("exact", "fp16", "bf16", "powersgd:1", "powersgd:2", "powersgd:4"),
        *("inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "mx:e2m1"),
        *("feedback:rht:4", "feedback:rht:3", "feedback:relative:0", "feedback:relative:-1"),
        *("powersgd:4+rht:4", "powersgd:2+rht:4"),
        *("sparse-gd:0.01", f"dgc:0.01,warmup={full}", "scalecom:0.01", f"lgc-ps:{lgc}", f"lgc-ring:{lgc}"),
        *("wa", "wa+bounded:10+adt:16", f"wa+bounded:10+awp:0.0001,{interval}"),
    )


METHODS = _methods(full=200, learn=300, interval=100)
"""The first one is the reference. Phases are as long as in LGC's paper."""
SHORTER = _methods(full=40, learn=80, interval=40)
"""The same methods for short trainings."""
BRIEF = _methods(full=2, learn=2, interval=2)
"""The same methods for trainings of a few steps."""


@dataclass(frozen=True)
class Preset:
    """Defaults of a comparison."""

    trainings: Mapping[str, Training]
    """By model, all of them."""
    models: tuple[str, ...]
    methods: tuple[str, ...]
    workers: int
    seeds: tuple[int, ...] = (7,)


PRESETS = {
    "quick": Preset(QUICK, ("convnet", "transformer"), BRIEF, workers=2),
    "short": Preset(SHORT, torch_models.NAMES, SHORTER, workers=4),
    "full": Preset(FULL, torch_models.NAMES, METHODS, workers=4, seeds=(7, 8, 9)),
}


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison."""

    methods: tuple[str, ...]
    trainings: Mapping[str, Training]
    """By model."""
    workers: int = 4
    images: str | None = None
    """Directory of MNIST's files; None: scikit-learn's digits. Not for LEARN_PHOTOGRAPHS."""
    text: str | None = None
    """Text file; None: Python's language reference."""
    seeds: tuple[int, ...] = (7,)
    link: Mapping[str, str] = field(default_factory=dict)
    """Properties of emulated links; empty: links as fast as the machine."""

    def data_of(self, model: str) -> str | None:
        """Return what a job of this model has as `data`."""
        if torch_models.reads_text(model):
            return self.text
        return photos.NAME if model in LEARN_PHOTOGRAPHS else self.images

    def jobs(self) -> list[TrainingJob]:
        """Return one job for each seed, model and method."""
        return [
            TrainingJob(
                model=model,
                method=method,
                training=training,
                workers=self.workers,
                data=self.data_of(model),
                seed=seed,
            )
            for seed in self.seeds
            for model, training in self.trainings.items()
            for method in self.methods
        ]


@dataclass(frozen=True)
class TrainingJob:
    """One training by one method, as its ranks receive it."""

    model: str
    method: str
    training: Training
    workers: int
    data: str | None
    """Path of a text or of MNIST's files; "photos"; None: what Python or scikit-learn ships."""
    seed: int

    @classmethod
    def from_json(cls, text: str) -> TrainingJob:
        given = json.loads(text)
        return cls(**{**given, "training": Training(**given["training"])})

    @property
    def learns_photographs(self) -> bool:
        return self.data == photos.NAME

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def portable(self) -> TrainingJob:
        """Return the job with the data's name in place of its path, as results keep it."""
        return replace(self, data=self.data and Path(self.data).name)
