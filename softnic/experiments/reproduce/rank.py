"""One rank of a measured exchange: `python -m softnic.experiments.reproduce.rank --strategy wa --gradients FILE
--rounds 5`.

The strategies are those of softnic.experiments.train, on a model that is nothing but its gradients: the file's row of
this rank's number, the same ones in every round. At the end it tells what it did when
(softnic.experiments.timeline).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from softnic import MPI
from softnic.experiments.child_process import report_json
from softnic.experiments.data import Floats, Labels
from softnic.experiments.numpy_models import DenseNetwork
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.timeline import Timeline
from softnic.experiments.training_ranks import StrategyName, TrainingRanks
from softnic.ipc import regions

WARM_UP = 1
"""Rounds that fill caches and windows."""


class Vector(DenseNetwork):
    """A network of which nothing is known but how many weights it has. It cannot compute."""

    def __init__(self, count: int) -> None:
        self.parameters = regions.zeros(count)
        self.gradients = regions.zeros(count)
        self.layers = [slice(0, count)]

    def named(self, flat: Floats) -> dict[str, Floats]:
        """One matrix, so that precision applies to it."""
        return {"weights": flat.reshape(1, -1)}

    def predict(self, inputs: Floats) -> Labels:  # noqa: ARG002
        raise TypeError("a vector of weights predicts nothing")

    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:  # noqa: ARG002
        raise TypeError("a vector of weights has no loss")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", type=StrategyName.parse, required=True)
    parser.add_argument("--gradients", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    world = TrainingRanks(given.strategy)
    rows = np.load(given.gradients, mmap_mode="r")
    timeline = Timeline()
    model = Vector(rows.shape[1])
    replica = NumpyReplica(model, MomentumSgd(rows.shape[1], rate=0.01 / world.size), timeline)
    aggregates = world.rank == world.size
    aggregator = world.aggregator(replica) if aggregates else None
    strategy = None if aggregates else world.strategy(replica)
    for _ in range(WARM_UP + given.rounds):
        if not aggregates:
            model.gradients[:] = rows[world.rank]
        world.barrier()
        timeline.start()
        if aggregator is not None:
            aggregator.serve()
        if strategy is not None:
            strategy.ready(0)
            strategy.finish()
        timeline.stop()
    report_json(iterations=[each.as_json() for each in timeline.iterations[WARM_UP:]])
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
