"""Small trainings whose gradients or weights lose precision, which Figs. 4, 5, 14b and Table III share.

Four workers and their exchange are computed in one process (emulate.py), and as many trainings at a time as there are
cores. A training is kept as soon as it is done, in a file of its own that all these items read.

Weights lose precision in either of two ways. Sent: the aggregator keeps its weights whole, and workers compute with
rounded ones, as in A2DTWP. Kept: the rounded weights are what the next step starts from, so that an update smaller
than the rounding is lost, as where INCEPTIONN says that the loss of weights accumulates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from softnic import codecs
from softnic.experiments.data import DataSet, Floats, batches_of_rank, load
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.reproduce.context import Context, require_torch
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.inceptionn.emulate import EmulatedRing, exact_sum
from softnic.experiments.reproduce.inceptionn.table3 import distribution
from softnic.experiments.reproduce.learner import learner, samples
from softnic.experiments.reproduce.units import Unit, made
from softnic.experiments.spread import Spread

FILE = "inceptionn-trainings"
TITLES = {"alexnet": "AlexNet", "hdc": "HDC", "resnet50": "ResNet-34", "vgg16": "VGG-A"}
"""The networks of these trainings: HDC is the paper's, the others are small (networks.py)."""
STAGES = {"early": 0.05, "middle": 0.5, "final": 1.0}
"""Shares of the steps after which Fig. 5 and Table III look at gradients."""
EDGES = (2.0**-14, 2.0**-12, 2.0**-10, 2.0**-8, 2.0**-6, 2.0**-4, 2.0**-2, 1.0)
"""Between the magnitudes that are counted."""
_RATIOS = 10
"""Steps of a training whose ring's ratio is measured, evenly spread."""


LearningCurve = list[tuple[float, float]]
"""The growth of accuracy: epochs, and the accuracy on the test set then."""


@dataclass(frozen=True)
class LossyPlan:
    """A training of one model."""

    steps: int
    batch: int
    """Samples of a worker and step."""
    rate: float
    """At the first step; it falls linearly to zero."""
    tested: int = 2_000
    """Images of the test set."""


PLANS: Mapping[str, LossyPlan] = {
    "alexnet": LossyPlan(1000, 8, 0.02),
    "hdc": LossyPlan(1000, 25, 0.1),
    "resnet50": LossyPlan(500, 8, 0.05),
    "vgg16": LossyPlan(1000, 8, 0.02),
}


@dataclass(frozen=True)
class Loss:
    """What loses precision, by the names of codecs."""

    gradients: str | None = None
    """On every hop of the ring."""
    weights: str | None = None
    kept: bool = False
    """Whether the rounded weights are all there is, not only what workers receive."""

    @property
    def title(self) -> str:
        parts = [f"gradients {self.gradients}"] * bool(self.gradients)
        parts += [f"weights {'kept' if self.kept else 'sent'} {self.weights}"] * bool(self.weights)
        return ", ".join(parts) or "exact"


EXACT = Loss()


@dataclass(frozen=True)
class StageShares:
    """The gradients of one worker at one time of a training."""

    step: int
    largest: float
    """Magnitude."""
    deviation: float
    magnitudes: Sequence[float]
    """Shares below each of EDGES and from the one before on; last those from 1 on."""
    bits: Mapping[str, Sequence[float]]
    """Shares of words with 2, 10, 18 and 34 bits, by k."""


@dataclass(frozen=True)
class LossyTraining:
    """The result of one training."""

    accuracy: float
    """On the test set, 0..1."""
    ratio: float = 1.0
    """Of the bytes over all hops of the ring."""
    stages: Sequence[StageShares] = field(default_factory=list)
    """Of exact trainings only."""


def plan_of(context: Context, model: str) -> LossyPlan:
    own = PLANS[model]
    return replace(own, steps=4, batch=2, tested=100) if context.quick else own


def prepare(context: Context, cases: Mapping[str, Sequence[Loss]]) -> None:
    """Make the trainings of all these models and losses that the file lacks, on all cores.

    Raises ReproduceError without torch.
    """
    units: dict[str, Unit] = {}
    for model, losses in cases.items():
        for loss in losses:
            units |= _units(context, model, loss)
    _made(context, list(cases), units)


def trainings(context: Context, model: str, loss: Loss) -> list[LossyTraining]:
    """Return the trainings with every seed, from the file or made now. Raises ReproduceError without torch."""
    return list(_made(context, [model], _units(context, model, loss)).values())


def _units(context: Context, model: str, loss: Loss) -> dict[str, Unit]:
    own = plan_of(context, model)
    settings = {**asdict(own), **asdict(loss), "data": context.data.name, "workers": paper.WORKERS}
    return {
        f"{TITLES[model]}, {loss.title}, seed {seed}": Unit(settings, (context.data_path, model, own, loss, seed))
        for seed in context.seeds
    }


def _made(context: Context, models: Sequence[str], units: Mapping[str, Unit]) -> dict[str, LossyTraining]:
    for model in models:
        if model != "hdc":
            require_torch(TITLES[model])
    return made(context.shared(FILE), LossyTraining, train, units, context.progress, here=context.quick)


def train(data_path: Path, model: str, own: LossyPlan, loss: Loss, seed: int) -> LossyTraining:
    """Train one model with one loss of precision and one seed."""
    return _Training(_loaded(data_path), model, own, loss, seed).run()


def learning_curve(data_path: Path, model: str, own: LossyPlan, loss: Loss, seed: int, every: int) -> LearningCurve:
    """Train in the same way, and evaluate after each `every` steps."""
    data = _loaded(data_path)
    training = _Training(data, model, own, loss, seed)
    return [(epochs(data, own, step), training.accuracy()) for step in training.steps() if step % every == 0]


def epochs(data: DataSet, own: LossyPlan, steps: int) -> float:
    """Return how often the workers together have drawn as many samples as there are."""
    return steps * paper.WORKERS * own.batch / len(data.train_labels)


@lru_cache(1)
def _loaded(data_path: Path) -> DataSet:
    return load(data_path)


def accuracy(context: Context, model: str, loss: Loss) -> Spread:
    """Return the accuracy over the seeds, as `trainings` makes it."""
    return Spread([each.accuracy for each in trainings(context, model, loss)])


def differs(context: Context, models: Sequence[str]) -> list[str]:
    """Return how these trainings differ from the paper's."""
    lengths = ", ".join(
        f"{TITLES[model]} {plan_of(context, model).steps} steps of {paper.WORKERS} x {plan_of(context, model).batch}"
        for model in models
    )
    return [
        "HDC is the paper's. AlexNet has an eighth of its channels for 28 x 28 pixels, and so have ResNet-34 and VGG-A "
        f"in place of ResNet-50 and VGG-16; all on {context.data.name}: {lengths} images. The paper has 10,000 "
        "iterations for HDC, and 320,000 on ImageNet for AlexNet.",
        "The rate falls linearly to zero and there is no dropout; momentum and weight decay are Table I's. The sum of "
        "the workers' gradients is divided by their number after the exchange.",
        context.seeds_sentence,
    ]


class _Training:
    """Four workers of one process, which all hold the same weights."""

    def __init__(self, data: DataSet, model: str, own: LossyPlan, loss: Loss, seed: int) -> None:
        self._plan, self._loss = own, loss
        self._steps = own.steps
        self._data = samples(model, data)
        self._model = learner(model, data, seed)
        given = self._data
        self._draws: list[Iterator[tuple[Any, Any]]] = [
            batches_of_rank(given.train_inputs, given.train_labels, worker, paper.WORKERS, own.batch, seed)
            for worker in range(paper.WORKERS)
        ]
        self._decay = np.float32(paper.TRAINING[model].weight_decay)
        self._momentum = paper.TRAINING[model].momentum
        self._ring = EmulatedRing(codecs.get(loss.gradients)) if loss.gradients else None
        self._weights = codecs.get(loss.weights) if loss.weights else None
        self._ratios: list[float] = []
        self._stages: list[StageShares] = []

    def run(self) -> LossyTraining:
        for _ in self.steps():
            pass
        ratio = 1 / float(np.mean(self._ratios)) if self._ratios else 1.0
        return LossyTraining(self.accuracy(), ratio, self._stages)

    def steps(self) -> Iterator[int]:
        """Train, and yield the number of steps taken after each."""
        weights = self._model.parameters
        master = weights.copy()
        optimizer = MomentumSgd(master.size, 1.0, self._momentum)
        own = [np.empty_like(master) for _ in self._draws]
        total = np.empty_like(master)
        looks = {max(1, round(share * self._steps)) for share in STAGES.values()}
        self._publish(master)
        for step in range(1, self._steps + 1):
            for draw, gradients in zip(self._draws, own, strict=True):
                self._model.forward_backward(*next(draw))
                gradients[:] = self._model.gradients
            if self._loss == EXACT and step in looks:
                self._stages.append(stage(step, own[0]))
            self._exchange(step, own, total)
            total *= np.float32(1 / paper.WORKERS)
            total += self._decay * master
            total *= np.float32(self._plan.rate * (1 - (step - 1) / self._steps))
            optimizer.step(master, total)
            self._publish(master)
            yield step

    def accuracy(self) -> float:
        """Return the accuracy on the part of the test set that the plan has."""
        tested = slice(self._plan.tested)
        return 1 - self._model.error(self._data.test_inputs[tested], self._data.test_labels[tested])

    def _exchange(self, step: int, own: Sequence[Floats], total: Floats) -> None:
        if self._ring is None:
            exact_sum(own, total)
            return
        if step % max(1, self._steps // _RATIOS) == 0:
            self._ratios.append(1 / self._ring.ratio(own))
        self._ring(own, total)

    def _publish(self, master: Floats) -> None:
        """Give the model the weights as its workers have them."""
        if self._weights is None:
            self._model.parameters[:] = master
            return
        self._weights.roundtrip(master, out=self._model.parameters)
        if self._loss.kept:
            master[:] = self._model.parameters


def stage(step: int, gradients: Floats) -> StageShares:
    """Return the shares of a worker's gradients."""
    magnitudes = np.abs(gradients)
    counts = np.bincount(np.searchsorted(EDGES, magnitudes, side="right"), minlength=len(EDGES) + 1)
    bits = {str(k): distribution(codecs.get(f"inceptionn:{k}"), gradients).shares for k in paper.BOUNDS}
    shares = (counts / gradients.size).tolist()
    return StageShares(step, float(magnitudes.max()), float(gradients.std(dtype=np.float64)), shares, bits)
