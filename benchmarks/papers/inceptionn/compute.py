"""Seconds of one worker's forward pass, backward pass and update on this machine, at INCEPTIONN's batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from benchmarks.papers.context import Context, needs_torch
from benchmarks.papers.gradients import small_batch
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.learner import enlarged_batches
from benchmarks.papers.over_nics import TIMES
from softnic.experiments.data import batches_of_rank
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.replica import Replica
from softnic.experiments.strategies import BulkAllreduce
from softnic.experiments.timeline import Timeline, breakdowns
from softnic.experiments.torch_replica import TorchReplica
from softnic.experiments.trainer import TrainingLoop
from softnic.measure.timing import median

STEPS = 5
"""Measured steps of a network, after one that is not; HDC takes ten times as many."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the parts of one training step."""

    forward_s: float
    backward_s: float
    update_s: float

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.update_s


def measured(model: str, context: Context) -> StepTimes:
    """Return medians over steps of one worker that exchanges nothing, as the shared file keeps them.

    Networks compute small batches, and forward and backward passes are scaled up: not every machine has memory for 64
    samples. Updates do not depend on them. Raises ReproduceError without torch, except for `hdc`.
    """
    context.progress(f"computing steps of {paper.TITLES[model]}")
    batch = paper.TRAINING[model].batch if model == "hdc" else small_batch(model, context.settings)
    steps = 10 * STEPS if model == "hdc" else 1 + (1 if context.quick else STEPS)
    settings = {"data": context.data.name, "batch": batch, "steps": steps}
    settings |= {} if model == "hdc" else {"side": context.settings.side, "classes": context.settings.classes}
    with needs_torch(paper.TITLES[model]):
        return context.shared(TIMES).once(
            f"{paper.TITLES[model]}, computed", settings, lambda: _measured(model, context, batch, steps), StepTimes
        )


def _measured(model: str, context: Context, batch: int, steps: int) -> StepTimes:
    replica = _replica(model, context)
    data, settings = context.data, context.settings
    if model == "hdc":
        draws = batches_of_rank(data.train_inputs, data.train_labels, 0, 1, batch, settings.seed)
    else:
        draws = enlarged_batches(data, batch, settings.seed, settings.side)
    # Drawn in advance: a step does not include it.
    training = TrainingLoop(replica, BulkAllreduce(replica, lambda: None), iter(list(islice(draws, steps))))
    for step in range(steps):
        if model != "hdc":
            context.progress(f"computing step {step + 1} of {paper.TITLES[model]}")
        training.step()
    times = [breakdowns([iteration])[0] for iteration in replica.timeline.iterations[1:]]
    forward, backward, update = (
        median(getattr(each, part) for each in times) for part in ("forward", "backward", "update")
    )
    scale = paper.TRAINING[model].batch / batch
    return StepTimes(forward * scale, backward * scale, update)


def _replica(model: str, context: Context) -> Replica:
    settings, published = context.settings, paper.TRAINING[model]
    if model == "hdc":
        classifier = Classifier(context.data.features, np.random.default_rng(settings.seed))
        optimizer = MomentumSgd(len(classifier.parameters), published.rate, published.momentum)
        return NumpyReplica(classifier, optimizer, Timeline())
    from benchmarks.papers import networks

    return TorchReplica(networks.build(model, settings.classes, settings.seed), lambda _step: 1e-4, published.momentum)
