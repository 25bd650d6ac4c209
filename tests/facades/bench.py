"""The measurements of `softnic bench`."""

from __future__ import annotations

from benchmarks import sums
from benchmarks.schedules import execute
from softnic.bench import allreduce, codec, inputs
from softnic.experiments import measure
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.compressors import COMPRESSORS, Compressor
from softnic.experiments.measure import alternate, ratio, seconds_a_call
from softnic.experiments.report import MeasurementError

__all__ = [
    "COMPRESSORS",
    "ChildProcess",
    "Compressor",
    "MeasurementError",
    "allreduce",
    "alternate",
    "codec",
    "execute",
    "inputs",
    "measure",
    "ratio",
    "seconds_a_call",
    "sums",
]
