"""`softnic compare`: the same training by every method of exchange."""

from __future__ import annotations

from softnic.experiments import methods, photos, torch_hooks, torch_models
from softnic.experiments.compare import advice, link_report, page, plan, report, run, summary
from softnic.experiments.compare.plan import ComparisonPlan, Training, TrainingJob
from softnic.experiments.compare.results import TrainingResult, TrainingResults
from softnic.experiments.compare.run import Comparison, FailedTraining, TrainingNodes
from softnic.experiments.compare.training import Evaluation, Interval, RankSteps, RankTraining, Usage
from softnic.experiments.torch_hooks import TorchHook
from softnic.experiments.torch_replica import TorchReplica

__all__ = [
    "Comparison",
    "ComparisonPlan",
    "Evaluation",
    "FailedTraining",
    "Interval",
    "RankSteps",
    "RankTraining",
    "TorchHook",
    "TorchReplica",
    "Training",
    "TrainingJob",
    "TrainingNodes",
    "TrainingResult",
    "TrainingResults",
    "Usage",
    "advice",
    "link_report",
    "methods",
    "page",
    "photos",
    "plan",
    "report",
    "run",
    "summary",
    "torch_hooks",
    "torch_models",
]
