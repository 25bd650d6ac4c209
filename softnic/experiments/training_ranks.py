"""Strategies over the ranks of MPI.COMM_WORLD, for models in numpy."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from softnic import MPI
from softnic.experiments.data import Floats
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.strategies import (
    Aggregator,
    BulkAllreduce,
    CommunicatorLegs,
    Overlapped,
    Pending,
    Strategy,
    StrategyName,
    Worker,
)
from softnic.gradients import awp

Thing = TypeVar("Thing")

_ALGORITHMS = {"inc": "ring", "hierarchical": "hierarchical"}
"""Algorithm of the all-reduce; other kinds use the best one for the size."""


class TrainingRanks:
    """The first `size` ranks train; an aggregator is the rank behind them."""

    def __init__(self, name: StrategyName, in_flight: int = 0) -> None:
        self._comm = MPI.COMM_WORLD
        self._name = name
        self._in_flight = in_flight
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size() - name.aggregators
        precision = None if name.precision is None else awp.precision(name.precision)
        self._legs = CommunicatorLegs(self._comm, name.codec, precision)
        self.weights = self._legs.traffic
        """Weights that an aggregator sent each worker, or that this worker received."""
        self._reduction: dict[str, Any] = {"codec": name.codec or "raw", "algorithm": _ALGORITHMS.get(name.kind)}

    def strategy(self, replica: NumpyReplica) -> Strategy:
        """Return this rank's part of the strategy."""
        kind = self._name.kind
        if self.rank == self.size:
            if self._name.precision is not None:
                replica = NumpyReplica(replica.model, replica.optimizer, replica.timeline, replica.parameters.copy())
            return Aggregator(replica, self._legs, self.size)
        if kind == "wa":
            return Worker(replica, self._legs)
        if kind == "nic":
            return BulkAllreduce(replica, lambda: self._begin(replica.gradients).Wait())
        if kind == "nic-overlapped":
            return Overlapped(replica, self._begin, self._in_flight)
        if kind == "host-overlapped":
            thread = ThreadPoolExecutor(1, "exchange")
            return Overlapped(replica, lambda part: _Started(thread.submit(self._sum, part)), self._in_flight)
        return BulkAllreduce(replica, partial(self._sum, replica.gradients))

    def barrier(self) -> None:
        """Return once all ranks have called this."""
        self._comm.Barrier()

    def gather(self, thing: Thing) -> list[Thing]:
        """Return what every rank passed, by rank."""
        things: list[Thing] = self._comm.allgather(thing)
        return things

    def _sum(self, gradients: Floats) -> None:
        self._comm.Allreduce_comp(MPI.IN_PLACE, gradients, **self._reduction)

    def _begin(self, gradients: Floats) -> Pending:
        return self._comm.Iallreduce_comp(MPI.IN_PLACE, gradients, **self._reduction)


@dataclass(frozen=True)
class _Started:
    """A reduction by a thread beside the one that computes; reductions are executed in the order of their starts.

    A host without an offloading NIC does this, at the cost of CPU cores (Ma et al., section III).
    """

    future: Future[Any]

    def Wait(self) -> None:
        self.future.result()
