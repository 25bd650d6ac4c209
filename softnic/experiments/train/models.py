"""Models by name: `hdc`, and `mlp` with its layers and their width, as in `mlp:20x2048`."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from softnic.experiments.train.hdc import Classifier
from softnic.experiments.train.mlp import LAYERS, WIDTH, Perceptron
from softnic.experiments.train.network import Network

_MLP = re.compile(r"mlp(?::([1-9][0-9]{0,3})x([1-9][0-9]{0,4}))?")
HELP = f"hdc, or mlp:LAYERSxWIDTH; mlp alone is mlp:{LAYERS}x{WIDTH}"


class Rates(NamedTuple):
    """What a model learns well with."""

    rate: float
    momentum: float


def make(name: str, features: int, rng: np.random.Generator) -> Network:
    """A new model, with weights drawn from `rng`. Raises ValueError for a name that is none."""
    if name == "hdc":
        return Classifier(features, rng)
    layers, width = _shape(name)
    return Perceptron(features, rng, layers, width)


def check(name: str) -> str:
    """The name, if it is one. Raises ValueError."""
    if name != "hdc":
        _shape(name)
    return name


def rates(name: str) -> Rates:
    return Rates(0.01, 0.9) if name == "hdc" else Rates(0.1, 0.0)


def _shape(name: str) -> tuple[int, int]:
    found = _MLP.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no model: {HELP}")
    return int(found[1] or LAYERS), int(found[2] or WIDTH)
