"""`softnic compare`: the same training by every method of exchange."""

from __future__ import annotations

from softnic.experiments import methods, torch_models
from softnic.experiments.compare import plan, plot, report, run
from softnic.experiments.compare.learn import Look, Rank, Used
from softnic.experiments.compare.learn import _Part as Part
from softnic.experiments.compare.plan import Job, Plan, Training
from softnic.experiments.compare.results import Result, Results
from softnic.experiments.compare.run import Comparison, Failure
from softnic.experiments.torch_replica import TorchReplica

__all__ = [
    "Comparison",
    "Failure",
    "Job",
    "Look",
    "Part",
    "Plan",
    "Rank",
    "Result",
    "Results",
    "TorchReplica",
    "Training",
    "Used",
    "look_of",
    "methods",
    "plan",
    "plot",
    "report",
    "run",
    "torch_models",
]


def look_of(rank: Rank, step: int, last: Look, parts: list[Part]) -> Look:
    """Return what a rank makes of what all ranks tell after a step."""
    return rank._look(step, last, parts)
