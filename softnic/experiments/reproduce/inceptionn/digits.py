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
from softnic.experiments.reproduce.inceptionn.emulate import EmulatedExchange, exact_sum
from softnic.experiments.trainer import TrainingPlan

_PUBLISHED = paper.TRAINING["hdc"]


@dataclass
class HdcTraining:
    """The course of one training."""

    accuracy: float = 0.0
    """On the test set, at the end."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """Steps taken, and the accuracy then."""
    losses: list[float] = field(default_factory=list)


def plan(steps: int, seed: int = 7) -> TrainingPlan:
    """Return the plan of a training with Table I's hyperparameters."""
    return TrainingPlan(steps, _PUBLISHED.batch, _PUBLISHED.rate, _PUBLISHED.momentum, seed)


def rate_factor(steps: int, step: int) -> float:
    """Return the factor of the rate at a step. Table I divides it by 5 every 2,000 of 10,000 iterations."""
    every = max(1, steps * _PUBLISHED.reduction_iterations // _PUBLISHED.iterations)
    return _PUBLISHED.reduction ** -(step // every)


def epoch_steps(data: DataSet) -> int:
    """Return the number of steps in which the workers together draw as many samples as there are."""
    return max(1, len(data.train_labels) // (paper.WORKERS * _PUBLISHED.batch))


def train(
    data: DataSet,
    plan: TrainingPlan,
    exchange: EmulatedExchange = exact_sum,
    on_step: Callable[[int, list[Floats]], None] = lambda _step, _gradients: None,
    eval_every: int = 0,
) -> HdcTraining:
    """Train, and evaluate every `eval_every` steps (0: at the end only).

    `on_step` receives the number of a step, from 0, and every worker's gradients before they are exchanged.
    """
    model = Classifier(data.features, np.random.default_rng(plan.seed))
    optimizer = MomentumSgd(len(model.parameters), plan.rate, plan.momentum)
    draws = [
        batches_of_rank(data.train_inputs, data.train_labels, worker, paper.WORKERS, plan.batch, plan.seed)
        for worker in range(paper.WORKERS)
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
        total *= np.float32(1 / paper.WORKERS)
        total += np.float32(_PUBLISHED.weight_decay) * model.parameters
        total *= np.float32(rate_factor(plan.steps, step))
        optimizer.step(model.parameters, total)
        if eval_every and (step + 1) % eval_every == 0:
            done.evaluations.append((step + 1, model.accuracy(data.test_inputs, data.test_labels)))
    done.accuracy = model.accuracy(data.test_inputs, data.test_labels)
    return done
