"""Floats to measure with, by name: `gaussian:0.01`, `zeros`, `sparse:0.02`, `hdc`."""

from __future__ import annotations

import numpy as np

from softnic.experiments.data import Floats, batches_of_rank, digits
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.strategies import BulkAllreduce
from softnic.experiments.timeline import Timeline
from softnic.experiments.trainer import TrainingLoop

ZEROS_SIGMA = 0.00001
"""Standard deviation of floats that codecs with a usual bound encode as zeros: far below 2^-10."""
_WARM_UP_STEPS = 20
_BATCH = 25
_SEED = 7
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


def _gradients(count: int) -> Floats:
    """Return gradients of the digit classifier, trained alone, step after step."""
    data = digits()
    model = Classifier(data.features, np.random.default_rng(_SEED))
    replica = NumpyReplica(model, MomentumSgd(model.parameters.size), Timeline())
    kept: list[Floats] = []
    record = BulkAllreduce(replica, lambda: kept.append(replica.gradients.copy()))
    trainer = TrainingLoop(replica, record, batches_of_rank(data.train_inputs, data.train_labels, 0, 1, _BATCH, _SEED))
    for _ in range(_WARM_UP_STEPS - (-count // model.gradients.size)):
        trainer.step()
    return np.concatenate(kept[_WARM_UP_STEPS:])[:count]
