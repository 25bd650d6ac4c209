"""`softnic compare`: the same training by every method of exchange."""

from __future__ import annotations

from softnic.compare import methods, models, picture, plan, report, run
from softnic.compare.learn import Look, Rank, Used
from softnic.compare.learn import _Part as Part
from softnic.compare.plan import Job, Plan, Training
from softnic.compare.replica import Replica
from softnic.compare.results import Result, Results
from softnic.compare.run import Comparison, Failure

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
    "picture",
    "plan",
    "report",
    "run",
]


def look_of(rank: Rank, step: int, last: Look, parts: list[Part]) -> Look:
    """Return what a rank makes of what all ranks tell after a step."""
    return rank._look(step, last, parts)
