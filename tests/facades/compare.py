"""`softnic compare`: the same training by every method of exchange."""

from __future__ import annotations

from softnic.compare import methods, models, picture, plan, report, run
from softnic.compare.learn import Look, Rank, Used
from softnic.compare.plan import Job, Plan, Training
from softnic.compare.replica import Replica
from softnic.compare.results import Result, Results
from softnic.compare.run import Comparison, Failure

__all__ = [
    "Comparison",
    "Failure",
    "Job",
    "Look",
    "Plan",
    "Rank",
    "Replica",
    "Result",
    "Results",
    "Training",
    "Used",
    "methods",
    "models",
    "picture",
    "plan",
    "report",
    "run",
]
