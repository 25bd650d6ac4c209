"""Seconds of one worker's forward pass, backward pass and update on this machine, at INCEPTIONN's batch."""

from __future__ import annotations

import time

import numpy as np

from softnic.experiments.data import batches
from softnic.experiments.measure import median
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.gradients import small_batch
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.learner import StepTimes, Trainer, enlarged

STEPS = 5
"""Measured steps, after one that is not."""


def measured(model: str, context: Context) -> StepTimes:
    """Medians over steps. Raises ImportError without torch, except for `hdc`."""
    context.progress(f"computing steps of {paper.TITLES[model]}")
    return _digits(context) if model == "hdc" else _network(model, context)


def _digits(context: Context) -> StepTimes:
    data, published = context.data, paper.TRAINING["hdc"]
    model = Classifier(data.features, np.random.default_rng(context.settings.seed))
    optimizer = MomentumSgd(len(model.parameters), published.rate, published.momentum)
    draws = batches(len(data.train_labels), published.batch, np.random.default_rng(context.settings.seed))
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
        times.append(StepTimes(forward - started, backward - forward, time.perf_counter() - backward))
    return _medians(times[1:], 1)


def _network(model: str, context: Context) -> StepTimes:
    """In small batches, scaled up: not every machine has memory for 64 samples, and updates do not depend on them."""
    from softnic.experiments.reproduce import networks

    settings, data = context.settings, context.data
    small = small_batch(model, settings)
    trainer = Trainer(networks.build(model, settings.classes, settings.seed), rate=1e-4)
    draws = batches(len(data.train_labels), small, np.random.default_rng(settings.seed))
    times = []
    for step in range(1 + (1 if context.quick else STEPS)):
        context.progress(f"computing step {step + 1} of {paper.TITLES[model]}")
        drawn = next(draws)
        times.append(trainer.step(*enlarged(data.train_inputs[drawn], data.train_labels[drawn], settings.side)))
    return _medians(times[1:], paper.TRAINING[model].batch / small)


def _medians(times: list[StepTimes], batches: float) -> StepTimes:
    """Of whole batches, which take `batches` forward and backward passes."""
    forward, backward, update = (
        median(getattr(step, part) for step in times) for part in ("forward_s", "backward_s", "update_s")
    )
    return StepTimes(forward * batches, backward * batches, update)
