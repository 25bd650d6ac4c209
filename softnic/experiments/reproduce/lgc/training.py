"""Networks trained by four ranks over four NICs, by LGC and by what its paper holds it against."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from softnic.cluster import Cluster
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.parallel import ONE_THREAD
from softnic.experiments.reproduce.report import ReproduceError
from softnic.extras import not_installed
from softnic.gradients.lgc.phases import Traffic

RANK = "softnic.experiments.reproduce.lgc.rank"
TITLES = {"convnet": "ConvNet5", "resnet": "ResNet8"}
"""softnic.experiments.torch_models' names, and what tables call them."""
RATE, DELAY = "1gbit", "20us"
"""Of links."""
_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Plan:
    """How long things take here."""

    workers: int
    steps: int
    full: int
    """Steps of LGC's first phase; of DGC, over which it warms up."""
    learn: int
    """Of its second."""
    judge_every: int
    models: tuple[str, ...] = ("convnet", "resnet")

    @property
    def phases(self) -> str:
        """As a method's text has them."""
        return f"momentum=0.9,full={self.full},learn={self.learn}"


FULL = Plan(workers=4, steps=600, full=100, learn=200, judge_every=50)
QUICK = Plan(workers=2, steps=6, full=2, learn=2, judge_every=3, models=("convnet",))


def plan(context: Context) -> Plan:
    return QUICK if context.quick else FULL


@dataclass(frozen=True)
class Trained:
    """How a training went."""

    judged: Sequence[tuple[int, float]]
    """Steps done, and the accuracy then."""
    losses: Sequence[float]
    """Of each step, mean over the ranks."""
    step_bytes: int
    """Of one rank's gradients."""
    sent: Sequence[Sequence[int]]
    """By rank and step: what stands for them."""
    wire: int
    """Bytes that all NICs sent, with all headers."""
    seconds: Sequence[float]
    """Of each step, median over the ranks."""
    traffic: Sequence[Mapping[str, Traffic]] = field(default_factory=list)
    """By rank and phase, of LGC."""

    @property
    def accuracy(self) -> float:
        return self.judged[-1][1]

    def ratio(self, begin: int) -> float:
        """Compression in the steps from `begin` on, mean over the ranks."""
        return self.step_bytes / float(np.mean([rank[begin:] for rank in self.sent]))


def trained(context: Context, model: str, methods: Mapping[str, str], what: str) -> dict[str, Trained]:
    """One training for each of the methods (texts of softnic.gradients, `+m` behind those that have the momentum),
    by the same names. Raises ReproduceError, MeasurementError, ClusterError."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ReproduceError(f"LGC: {not_installed('torch')}") from error
    given = plan(context)
    options = [
        *("--model", model, "--steps", str(given.steps), "--judge-every", str(given.judge_every)),
        *("--seed", str(context.settings.seed), "--data", str(context.data_path), "--methods", *methods.values()),
    ]
    done: dict[str, Trained] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(nodes=given.workers, rate=RATE, delay=DELAY, seed=context.settings.seed))
        start = partial(cluster.spawn, env={**os.environ, **ONE_THREAD})
        ranks = [stack.enter_context(ChildProcess(start, rank, RANK, *options)) for rank in range(given.workers)]
        for name in methods:
            context.progress(f"{what}: {TITLES[model]}, {name}, {given.steps} steps")
            done[name] = _told(ranks[0].receive(_LIMIT_S))
    return done


def _told(told: Mapping[str, Any]) -> Trained:
    ranks = told["ranks"]
    return Trained(
        [(step, accuracy) for step, accuracy in told["judged"]],
        np.mean([rank["losses"] for rank in ranks], axis=0).tolist(),
        told["bytes"],
        [rank["sent"] for rank in ranks],
        sum(rank["wire"] for rank in ranks),
        np.median([rank["seconds"] for rank in ranks], axis=0).tolist(),
        [{phase: Traffic(**each) for phase, each in rank["traffic"].items()} for rank in ranks],
    )


def smoothed(losses: Sequence[float], points: int) -> tuple[list[float], list[float]]:
    """Where, in steps, and the mean of as many parts of about the same length."""
    parts = np.array_split(np.asarray(losses), min(points, len(losses)))
    ends = np.cumsum([len(part) for part in parts])
    return [float(end) for end in ends], [float(part.mean()) for part in parts]


def networks_differ(context: Context) -> list[str]:
    """How what is trained here is not what the paper trains."""
    lines = [
        f"Networks of 0.3 to 0.4 million parameters on {context.data.name}; the paper has ResNet50 (25.6 million) on "
        "Cifar10 and ImageNet, and others."
    ]
    return [*lines, "--quick: a few steps; the figures mean nothing."] if context.quick else lines


def differs(context: Context) -> list[str]:
    """How trainings here are not the paper's."""
    given = plan(context)
    return [
        *networks_differ(context),
        f"{given.workers} ranks, {given.steps} steps of 16 samples each, {given.full} and {given.learn} of them in the "
        "first two phases. The paper has two to eight nodes, and phases of 200 and 200 to 300 steps.",
    ]
