"""Floats to measure with, by name: `gaussian:0.01`, `zeros`, `sparse:0.02`, `hdc`."""

from __future__ import annotations

from functools import partial

import numpy as np

from softnic.experiments.data import Floats, digits
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.strategies import BulkAllreduce, Strategy
from softnic.experiments.timeline import Iteration
from softnic.experiments.trainer import TrainingPlan, train

ZEROS_SIGMA = 0.00001
"""Standard deviation of floats that codecs with a usual bound encode as zeros: far below 2^-10."""
_WARM_UP_STEPS = 20
_HELP = "gaussian:SIGMA, zeros, sparse:SHARE or hdc"
_ALIASES = {"silent": "zeros"}
"""Former names."""


def floats(name: str, count: int) -> Floats:
    """Return `count` floats, the same in every call.

    Parameters
    ----------
    name : str
        - `gaussian:0.01`: normal, like gradients, with that standard deviation
        - `zeros`: normal, all below every usual bound
        - `sparse:0.02`: that share normal with 0.01, the rest 0
        - `hdc`: gradients of the digit classifier of `softnic demo`, step after step
    count : int
        Number of floats.

    Raises
    ------
    ValueError
        The name is unknown.
    ImportError
        `hdc` was requested and scikit-learn is not installed.
    """
    name = check(name)
    kind, _, parameter = name.partition(":")
    if kind == "hdc":
        return _gradients(count)
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(count, np.float32)
    if kind == "sparse":
        return np.where(rng.random(count) < float(parameter), normal * np.float32(0.01), np.float32(0))
    return normal * np.float32(ZEROS_SIGMA if kind == "zeros" else float(parameter))


def check(name: str) -> str:
    """Return the current name of the data. Raises ValueError for an unknown name."""
    name = _ALIASES.get(name, name)
    kind, colon, parameter = name.partition(":")
    if kind in ("zeros", "hdc") and not colon:
        return name
    try:
        value = float(parameter)
    except ValueError:
        value = -1.0
    if (kind == "gaussian" and 0 < value < 1e30) or (kind == "sparse" and 0 <= value <= 1):
        return name
    raise ValueError(f"unknown data {name!r}: expected {_HELP}, as in gaussian:0.01")


class _Recorder:
    """A group of one rank that records the gradients instead of summing them."""

    rank = 0
    size = 1

    def __init__(self, count: int) -> None:
        self.kept = np.empty(count, np.float32)
        self._skip = _WARM_UP_STEPS
        self._at = 0

    def strategy(self, replica: NumpyReplica) -> Strategy:
        return BulkAllreduce(replica, partial(self._keep, replica.gradients))

    def barrier(self) -> None:
        pass

    def gather(self, thing: list[Iteration]) -> list[list[Iteration]]:
        return [thing]

    def _keep(self, gradients: Floats) -> None:
        if self._skip:
            self._skip -= 1
            return
        part = gradients[: self.kept.size - self._at]
        self.kept[self._at : self._at + part.size] = part
        self._at += part.size


def _gradients(count: int) -> Floats:
    data = digits()
    length = Classifier(data.features, np.random.default_rng(0)).gradients.size
    recorder = _Recorder(count)
    train(data, TrainingPlan(_WARM_UP_STEPS + -(-count // length)), recorder)
    return recorder.kept
