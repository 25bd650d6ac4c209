"""`softnic train` and the demo: data, models, strategies, timelines."""

from __future__ import annotations

from softnic.experiments.train import models
from softnic.experiments.train.data import DataError, DataSet, Floats, batches, digits, load, mnist, read_idx, synthetic
from softnic.experiments.train.exchange import Outcome, Plan, train
from softnic.experiments.train.hdc import HIDDEN, Classifier
from softnic.experiments.train.mlp import LAYERS, WIDTH, Perceptron
from softnic.experiments.train.network import WHOLE, Network
from softnic.experiments.train.optimizer import Momentum
from softnic.experiments.train.replica import Replica
from softnic.experiments.train.strategies import Aggregator, Overlapped, Pending, Strategy, Worker
from softnic.experiments.train.strategies import Together as BulkAllreduce
from softnic.experiments.train.timeline import Breakdown, Iteration, Phase, Span, Timeline, breakdowns
from softnic.experiments.train.world import KINDS, Choice

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
