"""One rank of a measured exchange: `python -m benchmarks.papers.rank --strategy wa --gradients FILE`.

The strategies are those of softnic.experiments.train, on a model without computation: its gradients are the file's row
of this rank's number, the same ones in every round. At the end the rank reports its timeline.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from softnic import MPI
from softnic.experiments.data import Floats, Labels
from softnic.experiments.numpy_models import DenseNetwork
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.strategies import StrategyName
from softnic.experiments.timeline import Timeline
from softnic.experiments.training_ranks import TrainingRanks
from softnic.ipc import regions
from softnic.measure.child_process import report_json

WARM_UP = 1
"""Rounds that fill caches and open windows."""


class WeightVector(DenseNetwork):
    """A number of weights, without a network that could compute."""

    def __init__(self, count: int) -> None:
        self.parameters, self.gradients = regions.zeros(count), regions.zeros(count)
        self.layers = [slice(0, count)]

    def named(self, flat: Floats) -> dict[str, Floats]:
        """Return the vector as one matrix, so that precision applies to it."""
        return {"weights": flat.reshape(1, -1)}

    def predict(self, inputs: Floats) -> Labels:
        raise NotImplementedError

    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:
        raise NotImplementedError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", type=StrategyName.parse, required=True)
    parser.add_argument("--gradients", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    ranks, timeline = TrainingRanks(args.strategy), Timeline()
    rows = np.load(args.gradients, mmap_mode="r")
    replica = NumpyReplica(WeightVector(rows.shape[1]), MomentumSgd(rows.shape[1], 0.01 / ranks.size), timeline)
    strategy = ranks.strategy(replica)
    for _ in range(WARM_UP + args.rounds):
        if ranks.rank < ranks.size:
            replica.model.gradients[:] = rows[ranks.rank]
        ranks.barrier()
        timeline.start()
        strategy.ready(0)
        strategy.finish()
        timeline.stop()
    report_json(iterations=[each.as_json() for each in timeline.iterations[WARM_UP:]])
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
