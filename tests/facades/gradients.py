"""The inside of softnic.gradients: sparse exchanges, adaptive weight precision, error bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softnic.gradients import indices
from softnic.gradients.adt import Traffic, WeightLeg, packed
from softnic.gradients.awp import AWP, Array, Fixed, Monitor, leading, oracle, precision, whole_bytes
from softnic.gradients.bounds import Relative, rounding
from softnic.gradients.dgc import DGC
from softnic.gradients.indices import Indices
from softnic.gradients.information import PAPER_LEVELS, estimate
from softnic.gradients.method import Floats, MethodError
from softnic.gradients.scalecom import ScaleCom
from softnic.gradients.sparse import Sparse, exchange, largest, share
from softnic.gradients.worker_aggregator import WorkerAggregator

__all__ = [
    "AWP",
    "DGC",
    "PAPER_LEVELS",
    "Array",
    "Fixed",
    "Floats",
    "Indices",
    "MethodError",
    "Monitor",
    "Relative",
    "ScaleCom",
    "Sparse",
    "Traffic",
    "WeightLeg",
    "WorkerAggregator",
    "count_step",
    "estimate",
    "exchange",
    "indices",
    "largest",
    "leading",
    "oracle",
    "packed",
    "precision",
    "rounding",
    "share",
    "whole_bytes",
]


def count_step(method: DGC, names: Sequence[str]) -> None:
    """Count a step of these parameters, as an exchange does."""
    method._step({name: np.zeros(1, np.float32) for name in names})
