"""Strategies by name over the ranks of MPI.COMM_WORLD, for models in numpy.

A name is a kind and, where gradients are compressed, a codec: `inc`, `inc+bounded:10`, `nic-overlapped+bfp:7`. An
aggregator may also send weights in reduced precision: `wa+adt:16`, `wa+bounded:10+awp:-0.002,4000`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from softnic import MPI, codecs
from softnic.experiments.data import Floats
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.strategies import (
    Aggregator,
    BulkAllreduce,
    CommunicatorLegs,
    Overlapped,
    Pending,
    Strategy,
    Worker,
)
from softnic.gradients import awp

Thing = TypeVar("Thing")

KINDS = {
    "wa": "workers send gradients to an aggregator (one more rank), which sends weights back;\n"
    f"{'':18}uncompressed, or with +PRECISION: {awp.HELP}",
    "inc": "the ranks sum over a ring, without an aggregator",
    "hierarchical": "the same over groups of ranks, and over the groups",
    "nic": "the NICs sum, and the rank waits",
    "host-overlapped": "a thread of the rank sums each layer during back-propagation",
    "nic-overlapped": "the NICs sum each layer during back-propagation",
}
_ALGORITHMS = {"inc": "ring", "hierarchical": "hierarchical"}
"""Algorithm of the all-reduce; other kinds use the best one for the size."""


@dataclass(frozen=True)
class StrategyName:
    """Name of a strategy."""

    kind: str
    codec: str | None = None
    """Codec of the gradients. None: exact."""
    precision: str | None = None
    """Precision of the weights that an aggregator sends. None: exact."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name. Raises ValueError."""
        kind, *parts = text.split("+")
        if kind not in KINDS:
            raise ValueError(f"{text!r} is no strategy: {', '.join(KINDS)}, with +CODEC where gradients are compressed")
        precision = None
        if parts and parts[-1].partition(":")[0] in (awp.FIXED, awp.ADAPTIVE):
            precision = str(awp.precision(parts.pop()))
            if kind != "wa":
                raise ValueError(f"{text!r} is no strategy: only an aggregator (wa) sends weights")
        if len(parts) > 1:
            raise ValueError(f"{text!r} is no strategy: KIND+CODEC, or wa+CODEC+PRECISION")
        return cls(kind, str(codecs.get(parts[0])) if parts else None, precision)

    def __str__(self) -> str:
        return "+".join(filter(None, (self.kind, self.codec, self.precision)))

    @property
    def aggregators(self) -> int:
        """Number of ranks besides those that train."""
        return int(self.kind == "wa")


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
            return Overlapped(replica, _HostThread(self._sum).begin, self._in_flight)
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


class _HostThread:
    """Executes reductions in a thread beside the one that computes, in the order in which they are started.

    A host without an offloading NIC does this, at the cost of CPU cores (Ma et al., section III).
    """

    def __init__(self, reduce: Callable[[Floats], None]) -> None:
        self._reduce = reduce
        self._executor = ThreadPoolExecutor(1, "exchange")

    def begin(self, gradients: Floats) -> Pending:
        return _Started(self._executor.submit(self._reduce, gradients))


@dataclass(frozen=True)
class _Started:
    future: Future[Any]

    def Wait(self) -> None:
        self.future.result()
