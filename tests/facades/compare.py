"""`softnic compare`: the same training by every method of exchange."""

from __future__ import annotations

from softnic.experiments.compare import methods, models, plan, plot, report, run
from softnic.experiments.compare.learn import Look, Rank, Used
from softnic.experiments.compare.learn import _Part as Part
from softnic.experiments.compare.plan import Job, Plan, Training
from softnic.experiments.compare.replica import Replica
from softnic.experiments.compare.results import Result, Results
from softnic.experiments.compare.run import Comparison, Failure

__all__ = [
    "Comparison",
    "Failure",
    "Job",
    "Look",
    "Part",
    "Plan",
    "Rank",
    "Replica",
    "Result",
    "Results",
    "Training",
    "Used",
    "look_of",
    "methods",
    "models",
    "plan",
    "plot",
    "report",
    "run",
]


def look_of(rank: Rank, step: int, last: Look, parts: list[Part]) -> Look:
    """Return what a rank makes of what all ranks tell after a step."""
    return rank._look(step, last, parts)
