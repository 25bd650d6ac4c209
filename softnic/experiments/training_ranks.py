"""Strategies by name, over the ranks of MPI.COMM_WORLD.

A name is a kind, and a codec where gradients are compressed: `inc`, `inc+bounded:10`, `nic-overlapped+bfp:7`. Where an
aggregator sends weights, it may have their precision as well: `wa+adt:16`, `wa+bounded:10+awp:-0.002,4000`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from softnic import MPI, codecs
from softnic.experiments.data import Floats
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.strategies import Aggregator, BulkAllreduce, Overlapped, Pending, Strategy, Worker
from softnic.gradients import awp
from softnic.gradients.adt import Traffic, WeightLeg

Thing = TypeVar("Thing")

KINDS = {
    "wa": "workers send gradients to an aggregator (one more rank), which sends weights back;\n"
    f"{'':18}uncompressed, or with +PRECISION: {awp.HELP}",
    "inc": "the ranks sum over a ring, without an aggregator",
    "hierarchical": "the same over groups of ranks, and over the groups",
    "nic": "the NICs sum, and the rank waits",
    "host-overlapped": "a thread of the rank sums each layer while back-propagation goes on",
    "nic-overlapped": "the NICs sum each layer while back-propagation goes on",
}


_ALGORITHMS = {"inc": "ring", "hierarchical": "hierarchical"}
"""Of an all-reduce; others have what is best for the size."""


@dataclass(frozen=True)
class StrategyName:
    kind: str
    codec: str | None = None
    """Of gradients. None: exact."""
    precision: str | None = None
    """Of weights that an aggregator sends. None: exact."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
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
        """Ranks that it needs besides those that train."""
        return int(self.kind == "wa")


class TrainingRanks:
    """`size` ranks train, the first ones of all; an aggregator is the rank behind them."""

    def __init__(self, choice: StrategyName, in_flight: int = 0) -> None:
        self._comm = MPI.COMM_WORLD
        self._choice = choice
        self._codec = choice.codec or "raw"
        self._algorithm = _ALGORITHMS.get(choice.kind)
        self._in_flight = in_flight
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size() - choice.aggregators
        self.weights = Traffic()
        """What an aggregator sent each worker, or this worker was sent."""
        self._leg: WeightLeg | None = None
        if choice.precision is not None:
            self._leg = WeightLeg(self._comm, self.size, awp.precision(choice.precision))
            self.weights = self._leg.traffic

    def strategy(self, replica: NumpyReplica) -> Strategy:
        kind = self._choice.kind
        if kind == "wa":
            return Worker(replica, self, self.size)
        if kind == "nic":
            return BulkAllreduce(replica, lambda gradients: self._begin(gradients).Wait())
        if kind == "nic-overlapped":
            return Overlapped(replica, self._begin, self._in_flight)
        if kind == "host-overlapped":
            return Overlapped(replica, _Thread(self._sum).begin, self._in_flight)
        return BulkAllreduce(replica, self._sum)

    def aggregator(self, replica: NumpyReplica) -> Aggregator:
        """What rank `size` does."""
        if self._leg is not None:
            replica = replace(replica, master=replica.model.parameters.copy())
        return Aggregator(replica, self, self.size)

    def barrier(self) -> None:
        self._comm.Barrier()

    def gather(self, thing: Thing) -> list[Thing]:
        """What all ranks give, by rank."""
        things: list[Thing] = self._comm.allgather(thing)
        return things

    def send(self, gradients: Floats, dest: int) -> None:
        if self._choice.codec is None:
            self._comm.Send(gradients, dest)
        else:
            self._comm.Send_comp(gradients, dest, codec=self._choice.codec)

    def receive(self, gradients: Floats, source: int) -> None:
        if self._choice.codec is None:
            self._comm.Recv(gradients, source)
        else:
            self._comm.Recv_comp(gradients, source, codec=self._choice.codec)

    def publish(self, replica: NumpyReplica) -> None:
        model = replica.model
        if self._leg is None or replica.master is None:
            self._broadcast(model.parameters)
        else:
            self._leg.publish(model.named(replica.master), held=model.named(model.parameters))

    def fetch(self, replica: NumpyReplica) -> None:
        model = replica.model
        if self._leg is None:
            self._broadcast(model.parameters)
        else:
            self._leg.receive(model.named(model.parameters))

    def _broadcast(self, weights: Floats) -> None:
        self._comm.Bcast(weights, self.size)
        self.weights.original += weights.nbytes
        self.weights.sent += weights.nbytes

    def _sum(self, gradients: Floats) -> None:
        self._comm.Allreduce_comp(MPI.IN_PLACE, gradients, codec=self._codec, algorithm=self._algorithm)

    def _begin(self, gradients: Floats) -> Pending:
        return self._comm.Iallreduce_comp(MPI.IN_PLACE, gradients, codec=self._codec, algorithm=self._algorithm)


class _Thread:
    """Carries exchanges out in the order in which they were begun, beside the thread that computes: what a host without
    such a NIC does, and what costs it cores (section III of Ma et al.)."""

    def __init__(self, reduce: Callable[[Floats], None]) -> None:
        self._reduce = reduce
        self._executor = ThreadPoolExecutor(1, "exchange")

    def begin(self, gradients: Floats) -> Pending:
        return _Begun(self._executor.submit(self._reduce, gradients))


@dataclass(frozen=True)
class _Begun:
    future: Future[Any]

    def Wait(self) -> None:
        self.future.result()
