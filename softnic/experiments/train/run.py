"""Runs one training of a model in numpy over the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from softnic.cluster.cluster import Cluster
from softnic.experiments.runner import Event, RankPool
from softnic.experiments.timeline import Iteration
from softnic.experiments.trainer import RankOutcome, RankRun, TrainingPlan
from softnic.measure.report import MeasurementError

RANK = "softnic.experiments.train"


def run_training(
    cluster: Cluster,
    strategy: str,
    plan: TrainingPlan,
    data: Path,
    on_step: Callable[[int, float], None],
    *options: str,
) -> list[RankRun]:
    """Train on all nodes, at the model's own rates, and return what each rank did.

    Parameters
    ----------
    cluster
        The nodes. The last one is the aggregator's, if the strategy has one.
    strategy, plan, options
        The training, and more options of the ranks.
    data
        A file or directory for `data.load`.
    on_step
        Receives the number of steps done and rank 0's loss, from time to time.

    Raises
    ------
    MeasurementError
        A rank failed, or the ranks ended with different weights.
    """

    def on_event(event: Event) -> None:
        on_step(event["step"], event["loss"])

    settings = {"strategy": strategy, "model": plan.model, "steps": plan.steps, "batch": plan.batch, "seed": plan.seed}
    given = [f"--{name}={value}" for name, value in settings.items()]
    with RankPool(cluster, RANK, *given, f"--data={data}", "--events", "--trace", *options) as ranks:
        traces = ranks.collect("iterations", on_event)
        outcomes = [RankOutcome(**event) for event in ranks.collect("weights")]
    if len({outcome.weights for outcome in outcomes}) != 1:
        raise MeasurementError("the ranks ended with different weights; this is a bug")
    return [
        RankRun(outcome, [Iteration.from_json(each) for each in trace["iterations"]], trace["losses"], trace["cpu_s"])
        for outcome, trace in zip(outcomes, traces, strict=True)
    ]
