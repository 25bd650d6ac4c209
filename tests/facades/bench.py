"""What `softnic bench` measures with."""

from __future__ import annotations

from softnic.bench import allreduce, codec, inputs, measure, training
from softnic.bench.allreduce import Sent
from softnic.bench.compressors import COMPRESSORS, Compressor
from softnic.bench.errors import execute
from softnic.bench.measure import alternate, ratio, seconds_a_call
from softnic.bench.programs import Program
from softnic.bench.report import BenchError
from softnic.bench.training import Strategy
from softnic.bench.training_bars import lengths, show

__all__ = [
    "COMPRESSORS",
    "BenchError",
    "Compressor",
    "Program",
    "Sent",
    "Strategy",
    "allreduce",
    "alternate",
    "codec",
    "execute",
    "inputs",
    "lengths",
    "measure",
    "ratio",
    "seconds_a_call",
    "show",
    "training",
]
