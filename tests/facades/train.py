"""`softnic train` and the demo: data, models, strategies, timelines."""

from __future__ import annotations

from softnic.train import models
from softnic.train.data import DataError, DataSet, Floats, batches, digits, load, mnist, read_idx, synthetic
from softnic.train.exchange import Outcome, Plan, train
from softnic.train.hdc import HIDDEN, Classifier
from softnic.train.mlp import LAYERS, WIDTH, Perceptron
from softnic.train.network import WHOLE, Network
from softnic.train.optimizer import Momentum
from softnic.train.replica import Replica
from softnic.train.strategies import Aggregator, Overlapped, Pending, Strategy, Worker
from softnic.train.strategies import Together as BulkAllreduce
from softnic.train.timeline import Breakdown, Iteration, Phase, Span, Timeline, breakdowns
from softnic.train.world import KINDS, Choice

__all__ = [
    "HIDDEN",
    "KINDS",
    "LAYERS",
    "WHOLE",
    "WIDTH",
    "Aggregator",
    "Breakdown",
    "BulkAllreduce",
    "Choice",
    "Classifier",
    "DataError",
    "DataSet",
    "Floats",
    "Iteration",
    "Momentum",
    "Network",
    "Outcome",
    "Overlapped",
    "Pending",
    "Perceptron",
    "Phase",
    "Plan",
    "Replica",
    "Span",
    "Strategy",
    "Timeline",
    "Worker",
    "batches",
    "breakdowns",
    "digits",
    "load",
    "mnist",
    "models",
    "read_idx",
    "synthetic",
    "train",
]
