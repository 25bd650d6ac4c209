"""Networks trained by four ranks over four NICs, by LGC and by the methods that its paper compares it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softnic.experiments.compare.plan import Training, TrainingJob
from softnic.experiments.compare.run import TrainingNodes
from softnic.experiments.compare.training import Evaluation, RankSteps
from softnic.experiments.reproduce.context import Context, needs_torch
from softnic.experiments.reproduce.over_nics import LINK

BATCH, RATE = 16, 0.05
"""Of all trainings; the rate falls linearly to zero."""
TITLES = {"convnet": "ConvNet5", "resnet": "ResNet8"}
"""The tables' names of the networks of softnic.experiments.compare."""


@dataclass(frozen=True)
class LgcPlan:
    """A training, and the lengths of LGC's phases."""

    workers: int
    training: Training
    full: int
    """Steps of LGC's first phase, and of DGC's warm-up."""
    learn: int
    """Steps of LGC's second phase."""
    models: tuple[str, ...] = ("convnet", "resnet")

    @property
    def steps(self) -> int:
        return self.training.steps

    @property
    def phases(self) -> str:
        """LGC's phases, in the syntax of a method."""
        return f"momentum=0.9,full={self.full},learn={self.learn}"

    @property
    def settings(self) -> dict[str, int]:
        return {"steps": self.steps, "full": self.full, "workers": self.workers}


FULL = LgcPlan(4, Training(BATCH, 600, RATE, looks=12), full=100, learn=200)
QUICK = LgcPlan(2, Training(BATCH, 6, RATE, looks=2), full=2, learn=2, models=("convnet",))


def plan(context: Context) -> LgcPlan:
    return QUICK if context.quick else FULL


@dataclass(frozen=True)
class MethodTraining:
    """The course of a training by one method."""

    evaluations: Sequence[Evaluation]
    ranks: Sequence[RankSteps]

    @property
    def accuracy(self) -> float:
        return self.evaluations[-1].score

    @property
    def losses(self) -> Sequence[float]:
        """Of each step, mean over the ranks."""
        losses: list[float] = np.mean([rank.losses for rank in self.ranks], axis=0).tolist()
        return losses

    @property
    def wire(self) -> int:
        """Bytes that all NICs sent, with all headers."""
        return self.evaluations[-1].wire_bytes

    @property
    def late_ratio(self) -> float:
        """Compression in the last tenth of the steps, after all warm-up, mean over the ranks."""
        sent = [rank.sent_bytes[len(rank.losses) * 9 // 10 :] for rank in self.ranks]
        return self.ranks[0].given_bytes / float(np.mean(sent))


def trained(context: Context, model: str, methods: Mapping[str, str], what: str) -> dict[str, MethodTraining]:
    """Train once by each method; results have the methods' names.

    `methods`: of softnic.gradients, by name. `what`: the item, for progress. Raises ReproduceError, MeasurementError,
    ClusterError.
    """
    with needs_torch("LGC", ""):
        import torch  # noqa: F401
    own, seed, done = plan(context), context.settings.seed, {}
    with TrainingNodes(own.workers, seed, LINK) as nodes:
        for name, method in methods.items():
            context.progress(f"{what}: {TITLES[model]}, {name}, {own.steps} steps")
            job = TrainingJob(model, method, own.training, own.workers, str(context.data_path.absolute()), seed)
            result, ranks = nodes.train(job, lambda _what: None, linear=True)
            done[name] = MethodTraining(result.evaluations, ranks)
    return done


def smoothed(losses: Sequence[float], points: int) -> tuple[list[float], list[float]]:
    """Return means over parts of about the same length: the step at which each part ends, and its mean."""
    parts = np.array_split(np.asarray(losses), min(points, len(losses)))
    ends = np.cumsum([len(part) for part in parts])
    return [float(end) for end in ends], [float(part.mean()) for part in parts]


def networks_differ(context: Context) -> str:
    """Return how the networks here differ from the paper's."""
    return (
        f"Networks of 0.3 to 0.4 million parameters on {context.data.name}; the paper has ResNet50 (25.6 million) on "
        "Cifar10 and ImageNet, and others."
    )


def differs(context: Context) -> list[str]:
    """Return how trainings here differ from the paper's."""
    own = plan(context)
    return [
        networks_differ(context),
        f"{own.workers} ranks, {own.steps} steps of 16 samples each, {own.full} and {own.learn} of them in the "
        "first two phases. The paper has two to eight nodes, and phases of 200 and 200 to 300 steps.",
    ]
