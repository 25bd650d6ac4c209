"""The internals of softnic.gradients: sparse exchanges, adaptive weight precision, error bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softnic.gradients import indices as coding
from softnic.gradients.adt import WeightBroadcast, WeightTraffic, packed
from softnic.gradients.awp import AWP, Array, FixedPrecision, Monitor, leading, oracle, precision, whole_bytes
from softnic.gradients.bounds import RelativeBound, rounding
from softnic.gradients.dgc import DGC
from softnic.gradients.indices import Indices
from softnic.gradients.information import PAPER_LEVELS, estimate
from softnic.gradients.method import Floats, MethodError
from softnic.gradients.scalecom import ScaleCom
from softnic.gradients.sparse import Sparse, exchange, largest, selected_count
from softnic.gradients.worker_aggregator import WorkerAggregator

__all__ = [
    "AWP",
    "DGC",
    "PAPER_LEVELS",
    "Array",
    "FixedPrecision",
    "Floats",
    "Indices",
    "MethodError",
    "Monitor",
    "RelativeBound",
    "ScaleCom",
    "Sparse",
    "WeightBroadcast",
    "WeightTraffic",
    "WorkerAggregator",
    "coding",
    "count_step",
    "estimate",
    "exchange",
    "largest",
    "leading",
    "oracle",
    "packed",
    "precision",
    "rounding",
    "selected_count",
    "whole_bytes",
]


def count_step(method: DGC, names: Sequence[str]) -> None:
    """Count a step of these parameters, as an exchange does."""
    method._step({name: np.zeros(1, np.float32) for name in names})
