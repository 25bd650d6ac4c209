"""The performance model: costs of exchanges, and the cluster in virtual time that checks them."""

from __future__ import annotations

from softnic.model import chart, check, costs, frames, layers, parameters, predict, programs, smartnic
from softnic.model.check import CheckCase
from softnic.model.costs import Costs, ExchangeTime
from softnic.model.layers import Layer, mlp
from softnic.model.parameters import PAPER, CodecFigures, Machine
from softnic.model.predict import Prediction, TrainingSetup, system_of
from softnic.model.smartnic import LayerTimes, System
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Floats, Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec
from softnic.sim.switch import SwitchedLink

__all__ = [
    "PAPER",
    "CheckCase",
    "ClusterSpec",
    "CodecFigures",
    "Costs",
    "ExchangeTime",
    "Floats",
    "Layer",
    "LayerTimes",
    "Machine",
    "Prediction",
    "Program",
    "SimCluster",
    "SimRank",
    "SwitchedLink",
    "System",
    "TrainingSetup",
    "chart",
    "check",
    "costs",
    "frames",
    "gradients",
    "layers",
    "mlp",
    "parameters",
    "predict",
    "programs",
    "ratio_in",
    "smartnic",
]


gradients = check._gradients
"""Makes values that are distributed like gradients, from a count and a seed."""


def ratio_in(case: CheckCase) -> float:
    """Return the compression ratio of all that a case's NICs send."""
    return system_of(check._setup(case), check.machine_of(case), case.nodes, case.used_codec).beta
