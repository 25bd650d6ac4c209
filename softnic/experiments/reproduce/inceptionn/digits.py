"""INCEPTIONN's digit classifier (HDC), trained by four emulated workers in one process, with Table I's hyperparameters.

All workers hold the same weights at all times, so one copy serves them. Their gradients are computed one after the
other and summed by an `EmulatedExchange`. Differences from the paper: the sum is divided by the number of workers,
since its rate of 0.1 does not converge on a sum of four here; and training may be shorter, with the steps at which the
rate is reduced brought forward in proportion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from softnic.experiments.data import DataSet, Floats, batches_of_rank
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.inceptionn.emulate import EmulatedExchange, ExactSum


@dataclass(frozen=True)
class HdcPlan:
    """Parameters of a training of HDC."""

    steps: int
    workers: int = paper.WORKERS
    batch: int = paper.TRAINING["hdc"].batch
    rate: float = paper.TRAINING["hdc"].rate
    seed: int = 7
    eval_every: int = 0
    """Steps between evaluations on the test set; 0 for one at the end only."""

    def rate_factor(self, step: int) -> float:
        """Return the factor of the rate at a step. Table I divides it by 5 every 2,000 of 10,000 iterations."""
        published = paper.TRAINING["hdc"]
        every = max(1, self.steps * published.reduction_iterations // published.iterations)
        return published.reduction ** -(step // every)


@dataclass
class HdcTraining:
    """The course of one training."""

    accuracy: float = 0.0
    """On the test set, at the end."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """Steps taken, and the accuracy then."""
    losses: list[float] = field(default_factory=list)


OnStep = Callable[[int, list[Floats]], None]
"""Called with the number of a step, from 0, and every worker's gradients before they are exchanged."""


def epoch_steps(data: DataSet, plan: HdcPlan) -> int:
    """Return the number of steps in which the workers together draw as many samples as there are."""
    return max(1, len(data.train_labels) // (plan.workers * plan.batch))


def train(
    data: DataSet,
    plan: HdcPlan,
    exchange: EmulatedExchange | None = None,
    on_step: OnStep = lambda _step, _gradients: None,
    until: Callable[[float], bool] = lambda _accuracy: False,
) -> HdcTraining:
    """Train, and stop early once `until` returns True for an accuracy on the test set."""
    exchange = exchange or ExactSum()
    model = Classifier(data.features, np.random.default_rng(plan.seed))
    optimizer = MomentumSgd(len(model.parameters), plan.rate, paper.TRAINING["hdc"].momentum)
    draws = [
        batches_of_rank(data.train_inputs, data.train_labels, worker, plan.workers, plan.batch, plan.seed)
        for worker in range(plan.workers)
    ]
    gradients = [np.empty_like(model.gradients) for _ in draws]
    total = np.empty_like(model.gradients)
    done = HdcTraining()
    for step in range(plan.steps):
        losses = []
        for draw, own in zip(draws, gradients, strict=True):
            losses.append(model.forward_backward(*next(draw)))
            own[:] = model.gradients
        done.losses.append(float(np.mean(losses)))
        on_step(step, gradients)
        exchange(gradients, total)
        total *= np.float32(1 / plan.workers)
        total += np.float32(paper.TRAINING["hdc"].weight_decay) * model.parameters
        total *= np.float32(plan.rate_factor(step))
        optimizer.step(model.parameters, total)
        if plan.eval_every and (step + 1) % plan.eval_every == 0:
            done.evaluations.append((step + 1, model.accuracy(data.test_inputs, data.test_labels)))
            if until(done.evaluations[-1][1]):
                break
    done.accuracy = model.accuracy(data.test_inputs, data.test_labels)
    return done
