"""Networks trained by four ranks over four NICs, by LGC and by the methods that its paper compares it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softnic.experiments.reproduce.context import Context, needs_torch
from softnic.experiments.reproduce.over_nics import ranks
from softnic.gradients.lgc.phases import PhaseTraffic

RANK = "softnic.experiments.reproduce.lgc.rank"
TITLES = {"convnet": "ConvNet5", "resnet": "ResNet8"}
"""The tables' names of the networks of softnic.experiments.compare."""
_LIMIT_S = 1800.0


@dataclass(frozen=True)
class LgcPlan:
    """Lengths of trainings and of their phases."""

    workers: int
    steps: int
    full: int
    """Steps of LGC's first phase, and of DGC's warm-up."""
    learn: int
    """Steps of LGC's second phase."""
    eval_every: int
    models: tuple[str, ...] = ("convnet", "resnet")

    @property
    def phases(self) -> str:
        """LGC's phases, in the syntax of a method."""
        return f"momentum=0.9,full={self.full},learn={self.learn}"

    @property
    def settings(self) -> dict[str, int]:
        return {"steps": self.steps, "full": self.full, "workers": self.workers}


FULL = LgcPlan(workers=4, steps=600, full=100, learn=200, eval_every=50)
QUICK = LgcPlan(workers=2, steps=6, full=2, learn=2, eval_every=3, models=("convnet",))


def plan(context: Context) -> LgcPlan:
    return QUICK if context.quick else FULL


@dataclass(frozen=True)
class MethodTraining:
    """The course of a training by one method."""

    evaluations: Sequence[tuple[int, float]]
    """Steps taken, and the accuracy then."""
    losses: Sequence[float]
    """Of each step, mean over the ranks."""
    step_bytes: int
    """Of one rank's gradients."""
    sent: Sequence[Sequence[int]]
    """Bytes sent for them, by rank and step."""
    wire: int
    """Bytes that all NICs sent, with all headers."""
    seconds: Sequence[float]
    """Of each step, median over the ranks."""
    traffic: Sequence[Mapping[str, PhaseTraffic]]
    """By rank and phase; empty mappings for methods other than LGC."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> MethodTraining:
        """Return the training that rank 0 reported."""
        ranks = content["ranks"]
        return cls(
            content["evaluations"],
            np.mean([rank["losses"] for rank in ranks], axis=0).tolist(),
            content["bytes"],
            [rank["sent"] for rank in ranks],
            sum(rank["wire"] for rank in ranks),
            np.median([rank["seconds"] for rank in ranks], axis=0).tolist(),
            [{phase: PhaseTraffic(**each) for phase, each in rank["traffic"].items()} for rank in ranks],
        )

    @property
    def accuracy(self) -> float:
        return self.evaluations[-1][1]

    def ratio(self, begin: int) -> float:
        """Compression in the steps from `begin` on, mean over the ranks."""
        return self.step_bytes / float(np.mean([rank[begin:] for rank in self.sent]))


def trained(context: Context, model: str, methods: Mapping[str, str], what: str) -> dict[str, MethodTraining]:
    """Train once by each method; results have the methods' names.

    Parameters
    ----------
    methods
        Methods of softnic.gradients, by name.
    what
        The item, for progress.

    Raises
    ------
    ReproduceError, MeasurementError, ClusterError
    """
    with needs_torch("LGC", ""):
        import torch  # noqa: F401
    own = plan(context)
    options = [
        *("--model", model, "--steps", str(own.steps), "--eval-every", str(own.eval_every)),
        *("--seed", str(context.settings.seed), "--data", str(context.data_path), "--methods", *methods.values()),
    ]
    done = {}
    with ranks(context, own.workers, RANK, options) as processes:
        for name in methods:
            context.progress(f"{what}: {TITLES[model]}, {name}, {own.steps} steps")
            [report] = processes.collect("ranks", ranks=1, limit_s=_LIMIT_S)
            done[name] = MethodTraining.from_json(report)
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
