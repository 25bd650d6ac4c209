"""Small trainings whose gradients or weights lose precision, which Figs. 4, 5, 14b and Table III share.

Four workers are computed in one process (workers.py), and as many trainings at a time as there are
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

import numpy as np

from benchmarks.papers.context import Context, require_torch
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.inceptionn.emulate import EmulatedRing, exact_sum
from benchmarks.papers.inceptionn.table3 import distribution
from benchmarks.papers.learner import learner, samples
from benchmarks.papers.units import Unit, made
from benchmarks.papers.workers import Server, Workers, drawn
from softnic import codecs
from softnic.experiments.data import DataSet, Floats, load
from softnic.experiments.replica import Replica
from softnic.measure.spread import Spread

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


class _Rounded(Server):
    """A server whose workers have rounded weights, and which keeps these where the loss says so."""

    def __init__(self, model: Replica, own: LossyPlan, training: paper.Hyperparameters, loss: Loss) -> None:
        def rate_at(step: int) -> float:
            return own.rate * (1 - step / own.steps)

        super().__init__(model, 1.0, training.momentum, training.weight_decay, rate_at)
        self._codec = codecs.get(loss.weights) if loss.weights else None
        self._kept = loss.kept
        self.publish()

    def publish(self) -> None:
        if self._codec is None:
            super().publish()
            return
        self._codec.roundtrip(self.weights, out=self._replica.parameters)
        if self._kept:
            self.weights[:] = self._replica.parameters


class _Training:
    """Four workers of one process."""

    def __init__(self, data: DataSet, model: str, own: LossyPlan, loss: Loss, seed: int) -> None:
        self._plan, self._loss = own, loss
        self._data = samples(model, data)
        self._model = learner(model, data, seed)
        self._ring = EmulatedRing(codecs.get(loss.gradients)) if loss.gradients else None
        server = _Rounded(self._model, own, paper.TRAINING[model], loss)
        batches = drawn(self._data, paper.WORKERS, own.batch, seed)
        self._workers = Workers(self._model, batches, server.step, self._ring or exact_sum)

    def run(self) -> LossyTraining:
        shares: list[float] = []
        stages: list[StageShares] = []
        steps = self._plan.steps
        looks = {max(1, round(share * steps)) for share in STAGES.values()}
        for step in self.steps():
            if self._loss == EXACT and step in looks:
                stages.append(stage(step, self._workers.gradients[0]))
            if self._ring is not None and step % max(1, steps // _RATIOS) == 0:
                shares.append(1 / self._ring.ratio(self._workers.gradients))
        return LossyTraining(self.accuracy(), 1 / float(np.mean(shares)) if shares else 1.0, stages)

    def steps(self) -> Iterator[int]:
        """Train, and yield the number of steps taken after each."""
        return self._workers.steps(self._plan.steps)

    def accuracy(self) -> float:
        """Return the accuracy on the part of the test set that the plan has."""
        tested = slice(self._plan.tested)
        return 1 - self._model.error(self._data.test_inputs[tested], self._data.test_labels[tested])


def stage(step: int, gradients: Floats) -> StageShares:
    """Return the shares of a worker's gradients."""
    magnitudes = np.abs(gradients)
    counts = np.bincount(np.searchsorted(EDGES, magnitudes, side="right"), minlength=len(EDGES) + 1)
    bits = {str(k): distribution(codecs.get(f"inceptionn:{k}"), gradients).shares for k in paper.BOUNDS}
    shares = (counts / gradients.size).tolist()
    return StageShares(step, float(magnitudes.max()), float(gradients.std(dtype=np.float64)), shares, bits)
