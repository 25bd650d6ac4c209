"""Seconds that one worker's forward and backward pass and update take on this machine, at the paper's batch."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from softnic.experiments.data import batches
from softnic.experiments.measure import median
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.gradients import small_batch
from softnic.experiments.reproduce.inceptionn import paper

STEPS = 5
"""That are measured, after one that is not."""


@dataclass(frozen=True)
class Compute:
    forward_s: float
    backward_s: float
    update_s: float

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.update_s


def measured(model: str, context: Context) -> Compute:
    """Medians. Raises ImportError where torch is needed and not there."""
    context.progress(f"computing steps of {paper.TITLES[model]}")
    return _digits(context) if model == "hdc" else _network(model, context)


def _digits(context: Context) -> Compute:
    data, given = context.data, paper.TRAINING["hdc"]
    model = Classifier(data.features, np.random.default_rng(context.settings.seed))
    optimizer = MomentumSgd(len(model.parameters), given.rate, given.momentum)
    draws = batches(len(data.train_labels), given.batch, np.random.default_rng(context.settings.seed))
    times = []
    for _ in range(10 * STEPS):
        drawn = next(draws)
        inputs, labels = data.train_inputs[drawn], data.train_labels[drawn]
        started = time.perf_counter()
        model.forward(inputs, labels)
        forward = time.perf_counter()
        for _layer in model.backward():
            pass
        backward = time.perf_counter()
        optimizer.step(model.parameters, model.gradients)
        times.append((forward - started, backward - forward, time.perf_counter() - backward))
    return _medians(times[1:])


def _network(model: str, context: Context) -> Compute:
    """In small batches, scaled up: a batch of 64 would not fit everywhere, and the update does not depend on it."""
    from softnic.experiments.reproduce import networks

    settings, data = context.settings, context.data
    small = small_batch(model, settings)
    network = networks.build(model, settings.classes, settings.seed)
    trainer = networks.Trainer(network, rate=1e-4)
    draws = batches(len(data.train_labels), small, np.random.default_rng(settings.seed))
    times = []
    for step in range(1 + (1 if context.quick else STEPS)):
        context.progress(f"computing step {step + 1} of {paper.TITLES[model]}")
        drawn = next(draws)
        took = trainer.step(*networks.enlarged(data.train_inputs[drawn], data.train_labels[drawn], settings.side))
        times.append((took.forward_s, took.backward_s, took.update_s))
    middle = _medians(times[1:])
    times_more = paper.TRAINING[model].batch / small
    return Compute(middle.forward_s * times_more, middle.backward_s * times_more, middle.update_s)


def _medians(times: list[tuple[float, float, float]]) -> Compute:
    return Compute(*(median(part) for part in zip(*times, strict=True)))
