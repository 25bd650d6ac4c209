"""The paper's digit classifier (HDC) trained for real, by four workers in one process, with Table I's hyperparameters.

All workers hold the same weights at all times, so one copy serves them; their gradients are computed one after the
other and summed by an `Exchange`. What differs from the paper: the sum is divided by the number of workers, since its
rate of 0.1 does not converge on a sum of four here; and training may be shorter, with the steps at which the rate
is reduced brought forward in proportion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from softnic.experiments.data import DataSet, Floats, batches
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.inceptionn.emulate import Exact, Exchange


@dataclass(frozen=True)
class Plan:
    steps: int
    workers: int = paper.WORKERS
    batch: int = paper.TRAINING["hdc"].batch
    rate: float = paper.TRAINING["hdc"].rate
    seed: int = 7
    judge_every: int = 0
    """Steps between looks at the test set; 0: at the end only."""

    def reduced(self, step: int) -> float:
        """What is left of the rate. Table I: it is divided by 5 every 2,000 of 10,000 iterations."""
        given = paper.TRAINING["hdc"]
        every = max(1, self.steps * given.reduction_iterations // given.iterations)
        return given.reduction ** -(step // every)


@dataclass
class Training:
    """How it went."""

    accuracy: float = 0.0
    """On the test set, at the end."""
    judged: list[tuple[int, float]] = field(default_factory=list)
    """Steps done, and the accuracy then."""
    losses: list[float] = field(default_factory=list)


OnStep = Callable[[int, list[Floats]], None]
"""Is told the number of a step, from 0, and every worker's gradients in it, before they are exchanged."""


def epoch_steps(data: DataSet, plan: Plan) -> int:
    """Steps in which the workers together see as many samples as there are."""
    return max(1, len(data.train_labels) // (plan.workers * plan.batch))


def train(
    data: DataSet,
    plan: Plan,
    exchange: Exchange | None = None,
    on_step: OnStep = lambda _step, _gradients: None,
    until: Callable[[float], bool] = lambda _accuracy: False,
) -> Training:
    """Trains, and stops early once `until` says so of an accuracy on the test set."""
    exchange = exchange or Exact()
    model = Classifier(data.features, np.random.default_rng(plan.seed))
    optimizer = MomentumSgd(len(model.parameters), plan.rate, paper.TRAINING["hdc"].momentum)
    parts = [(data.train_inputs[w :: plan.workers], data.train_labels[w :: plan.workers]) for w in range(plan.workers)]
    draws = [
        batches(len(labels), plan.batch, np.random.default_rng([plan.seed, worker]))
        for worker, (_, labels) in enumerate(parts)
    ]
    given = [np.empty_like(model.gradients) for _ in parts]
    total = np.empty_like(model.gradients)
    done = Training()
    for step in range(plan.steps):
        losses = []
        for (inputs, labels), draw, gradients in zip(parts, draws, given, strict=True):
            drawn = next(draw)
            losses.append(model.forward_backward(inputs[drawn], labels[drawn]))
            gradients[:] = model.gradients
        done.losses.append(float(np.mean(losses)))
        on_step(step, given)
        exchange(given, total)
        total *= np.float32(1 / plan.workers)
        total += np.float32(paper.TRAINING["hdc"].weight_decay) * model.parameters
        total *= np.float32(plan.reduced(step))
        optimizer.step(model.parameters, total)
        if plan.judge_every and (step + 1) % plan.judge_every == 0:
            done.judged.append((step + 1, model.accuracy(data.test_inputs, data.test_labels)))
            if until(done.judged[-1][1]):
                break
    done.accuracy = model.accuracy(data.test_inputs, data.test_labels)
    return done
