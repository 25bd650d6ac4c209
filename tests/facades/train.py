"""`softnic train` and the demo: data, models, strategies, timelines."""

from __future__ import annotations

from softnic.experiments import numpy_models
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.data import DataError, DataSet, Floats, batches, digits, load, mnist, read_idx, synthetic
from softnic.experiments.demo import DemoRun
from softnic.experiments.demo import report as demo_report
from softnic.experiments.numpy_models import HIDDEN, LAYERS, WIDTH, Classifier, DenseNetwork, Perceptron
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.report import MeasurementError
from softnic.experiments.runner import RankPool
from softnic.experiments.strategies import (
    KINDS,
    Aggregator,
    BulkAllreduce,
    CommunicatorLegs,
    Overlapped,
    Pending,
    Strategy,
    StrategyName,
    Worker,
)
from softnic.experiments.timeline import WHOLE, Breakdown, Iteration, Phase, Span, Timeline, breakdowns
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.train import strategies_compared
from softnic.experiments.train.chart import lengths, show
from softnic.experiments.train.strategies_compared import StrategyRow
from softnic.experiments.trainer import RankOutcome, TrainingPlan, train

__all__ = [
    "HIDDEN",
    "KINDS",
    "LAYERS",
    "WHOLE",
    "WIDTH",
    "Aggregator",
    "Breakdown",
    "BulkAllreduce",
    "ChildProcess",
    "Classifier",
    "CommunicatorLegs",
    "DataError",
    "DataSet",
    "DemoRun",
    "DenseNetwork",
    "Floats",
    "Iteration",
    "MeasurementError",
    "MomentumSgd",
    "NicTraffic",
    "NumpyReplica",
    "Overlapped",
    "Pending",
    "Perceptron",
    "Phase",
    "RankOutcome",
    "RankPool",
    "Span",
    "Strategy",
    "StrategyName",
    "StrategyRow",
    "Timeline",
    "TrainingPlan",
    "Worker",
    "batches",
    "breakdowns",
    "demo_report",
    "digits",
    "lengths",
    "load",
    "mnist",
    "numpy_models",
    "read_idx",
    "show",
    "strategies_compared",
    "synthetic",
    "train",
]
