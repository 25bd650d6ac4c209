"""INCEPTIONN's digit classifier (HDC), trained by four emulated workers in one process, with Table I's hyperparameters.

Differences from the paper: the sum is divided by the number of workers,
since its rate of 0.1 does not converge on a sum of four here; and training may be shorter, with the steps at which the
rate is reduced brought forward in proportion.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers.inceptionn import paper
from benchmarks.papers.inceptionn.emulate import EmulatedExchange, exact_sum
from benchmarks.papers.workers import Server, Workers, drawn
from softnic.experiments.data import DataSet
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.timeline import Timeline
from softnic.experiments.trainer import TrainingPlan

_PUBLISHED = paper.TRAINING["hdc"]


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


class HdcWorkers(Workers):
    """The workers of one training."""

    def __init__(self, data: DataSet, plan: TrainingPlan, exchange: EmulatedExchange = exact_sum) -> None:
        self._data = data
        self._classifier = Classifier(data.features, np.random.default_rng(plan.seed))
        replica = NumpyReplica(self._classifier, MomentumSgd(0, momentum=0.0), Timeline())
        decay = _PUBLISHED.weight_decay
        server = Server(replica, plan.rate, plan.momentum, decay, lambda step: rate_factor(plan.steps, step))
        super().__init__(replica, drawn(data, paper.WORKERS, plan.batch, plan.seed), server.step, exchange)

    @property
    def accuracy(self) -> float:
        """On the test set."""
        return self._classifier.accuracy(self._data.test_inputs, self._data.test_labels)
