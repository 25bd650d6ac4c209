"""Ranks without a network: threads that add by INCEPTIONN's ring in numpy, synchronised by a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from softnic.experiments.data import DataSet, Floats
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.strategies import BulkAllreduce, Strategy
from softnic.experiments.timeline import Iteration
from softnic.experiments.trainer import RankOutcome, TrainingPlan, train

RoundTrip = Callable[[Floats], Floats]
"""Returns floats as they arrive after crossing a link."""


class Ring:
    """State shared by the ranks. A block starts at its own rank, is added to at every hop and rounded by each link; its
    last rank keeps the values that the others receive."""

    def __init__(self, size: int, link: RoundTrip) -> None:
        self.size = size
        self.link = link
        self.barrier = threading.Barrier(size, timeout=300)
        self.given: list[Floats] = [np.empty(0, dtype=np.float32)] * size
        self.things: list[list[Iteration]] = [[]] * size
        self.result = self.given[0]
        self.exchange = threading.Barrier(size, action=self._add_up, timeout=300)

    def abort(self) -> None:
        self.barrier.abort()
        self.exchange.abort()

    def _add_up(self) -> None:
        blocks = [np.array_split(gradients, self.size) for gradients in self.given]
        sums = []
        for block in range(self.size):
            travelling = blocks[block][block]
            for hop in range(1, self.size):
                travelling = self.link(travelling) + blocks[(block + hop) % self.size][block]
            sums.append(self.link(travelling))
        self.result = np.concatenate(sums)


class Rank:
    def __init__(self, ring: Ring, rank: int) -> None:
        self._ring = ring
        self.rank = rank
        self.size = ring.size

    def barrier(self) -> None:
        self._ring.barrier.wait()

    def strategy(self, replica: NumpyReplica) -> Strategy:
        return BulkAllreduce(replica, lambda: self.sum(replica.gradients))

    def gather(self, thing: list[Iteration]) -> list[list[Iteration]]:
        self._ring.things[self.rank] = thing
        self._ring.barrier.wait()
        return self._ring.things

    def sum(self, gradients: Floats) -> None:
        self._ring.given[self.rank] = gradients
        self._ring.exchange.wait()
        gradients[:] = self._ring.result


def train_together(
    data: DataSet, plan: TrainingPlan, size: int, link: RoundTrip = lambda sent: sent
) -> list[RankOutcome]:
    """Train on `size` ranks in threads, and return their outcomes by rank."""
    ring = Ring(size, link)

    def one(rank: int) -> RankOutcome:
        try:
            return train(data, plan, Rank(ring, rank))[0].outcome
        except BaseException:
            ring.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))
