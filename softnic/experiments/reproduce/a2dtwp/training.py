"""Trainings whose weights travel with few bits: each network at each batch, with every precision and with AWP.

What four workers and an aggregator would compute is computed in one process: all workers hold the same weights, rounded
as their way rounds them, so the mean of their gradients is that of the whole batch. Steps are taken on the weights in
full precision. Errors are those of the rounded weights, which is all that a worker has to judge.

T is found as section V-A says: from the mean change of all norms, from the beginning of the training with 32 bits until
its error on the test set has dropped. Results are kept in $XDG_CACHE_HOME/softnic/experiments/reproduce (~/.cache/...).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from softnic import codecs
from softnic.experiments.data import DataSet, batches, load
from softnic.experiments.report import Progress
from softnic.experiments.reproduce.a2dtwp import models
from softnic.experiments.reproduce.gradients import cache_directory
from softnic.experiments.reproduce.parallel import each
from softnic.experiments.reproduce.report import ReproduceError
from softnic.gradients.adt import packed
from softnic.gradients.awp import AWP, MOST_BITS, Fixed, Monitor, Precision, Weights

_VERSION = 1
"""Of what is cached; to be raised when the same settings give other results."""
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
"""Section IV-B."""
FIXED_BITS = (8, 16, 24, 32)
AWP_NAME = "A2DTWP"
_DROP = 0.05
"""Of the error, from the first look on: what ends the monitored period."""


@dataclass(frozen=True)
class Plan:
    """One model at one batch."""

    model: str
    batch: int
    """Of all workers together, as the paper counts."""
    rate: float
    steps: int = 500
    look_every: int = 25
    """Steps between looks at the test set."""
    tested: int = 2000
    """Images that a look is at."""
    interval: int = 25
    """AWP's INTERVAL, in batches: a twentieth of the training, as one epoch is of AlexNet's twenty (Fig. 5)."""
    seed: int = 7


@dataclass(frozen=True)
class Training:
    """How one went. Lists go with `looks`."""

    looks: list[int]
    """Steps done."""
    errors: list[float]
    """On the test set then, 0..1."""
    sent: list[int]
    """Bytes of weights that each worker was sent until then."""
    bits: list[float]
    """Mean over the weights, biases left out, of the last step before."""
    threshold: float
    """T, as monitored; of AWP's run only, else of the training with 32 bits."""

    def reaches(self, error: float) -> int | None:
        """The index of the first look at an error that is no larger; None: there is none."""
        return next((index for index, seen in enumerate(self.errors) if seen <= error), None)


def trainings(data: DataSet, path: Path, plan: Plan, progress: Progress) -> dict[str, Training]:
    """With each precision (`8`, `16`, `24`, `32`) and with A2DTWP, from the cache or made now. Raises ImportError, and
    ReproduceError where the baseline diverges."""
    file = cache_directory() / f"a2dtwp-{_key(data, plan)}.json"
    try:
        return {name: Training(**told) for name, told in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError):
        pass
    tasks = {str(bits): (path, plan, bits, 0.0) for bits in FIXED_BITS}
    done = each(trained, tasks, progress)
    threshold = done[str(MOST_BITS)].threshold
    if not np.isfinite(threshold):
        raise ReproduceError(
            f"{plan.model} diverges at batch {plan.batch} with a rate of {plan.rate:g}: nothing to compare"
        )
    done |= each(trained, {AWP_NAME: (path, plan, None, threshold)}, progress)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({name: asdict(training) for name, training in done.items()}))
    part.replace(file)
    return done


def trained(path: Path, plan: Plan, bits: int | None, threshold: float) -> Training:
    """With so many bits, or (None) with AWP and this T."""
    data = load(path)
    model = models.build(plan.model, data, plan.seed)
    blocks = models.block_of(plan.model)
    precision: Precision = AWP(threshold, plan.interval, blocks=blocks) if bits is None else Fixed(bits)
    server, monitor = Server(model, plan.rate, precision), Monitor(blocks)
    monitor.observe(packed(server.master))
    draws = batches(len(data.train_labels), plan.batch, np.random.default_rng(plan.seed))
    told = Training([], [], [], [], threshold)
    monitored = bits == MOST_BITS
    for step in range(1, plan.steps + 1):
        drawn = next(draws)
        model.forward_backward(data.train_inputs[drawn], data.train_labels[drawn])
        server.update()
        server.publish()
        if monitored:
            monitor.observe(packed(server.master))
        if step % plan.look_every == 0:
            told.looks.append(step)
            told.errors.append(model.error(data.test_inputs[: plan.tested], data.test_labels[: plan.tested]))
            told.sent.append(server.sent)
            told.bits.append(server.bits)
            monitored = monitored and told.errors[-1] > told.errors[0] - _DROP
    return Training(**{**asdict(told), "threshold": monitor.threshold if bits == MOST_BITS else threshold})


class Server:
    """The aggregator: SGD with momentum and weight decay on its own weights, of which the model gets what is sent."""

    def __init__(self, model: models.Learner, rate: float, precision: Precision | None = None) -> None:
        self._model = model
        self._rate = np.float32(rate)
        self._precision = precision or Fixed()
        self.master = {name: array.copy() for name, array in model.weights.items()}
        self._velocity = {name: np.zeros_like(array) for name, array in self.master.items()}
        self.sent = 0
        self.bits = 0.0
        self.publish()

    def update(self) -> None:
        """With the model's gradients."""
        for name, weights in self.master.items():
            velocity = self._velocity[name]
            velocity *= np.float32(MOMENTUM)
            velocity -= self._rate * (self._model.gradients[name] + np.float32(WEIGHT_DECAY) * weights)
            weights += velocity

    def publish(self) -> None:
        """The model gets the weights as they come out of their way."""
        adaptable: Weights = packed(self.master)
        self._precision.observe(adaptable)
        widths = {name: self._precision.bits(name) if name in adaptable else MOST_BITS for name in self.master}
        for name, width in widths.items():
            self._model.weights[name][...] = codecs.get(f"truncate:{width}").roundtrip(self.master[name])
        self.sent += sum(array.size * widths[name] // 8 for name, array in self.master.items())
        total = sum(array.size for array in adaptable.values())
        self.bits = sum(array.size * widths[name] for name, array in adaptable.items()) / total


def sizes(model: models.Learner) -> tuple[int, int]:
    """Weights that precision applies to, and all others (biases)."""
    every: Mapping[str, np.ndarray] = model.weights
    return sum(a.size for a in every.values() if a.ndim > 1), sum(a.size for a in every.values() if a.ndim < 2)


def _key(data: DataSet, plan: Plan) -> str:
    sample = hashlib.sha256(data.train_inputs[:100].tobytes() + data.train_labels.tobytes()).hexdigest()
    fields = {**asdict(plan), "version": _VERSION, "data": sample}
    return f"{plan.model}-{hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]}"
