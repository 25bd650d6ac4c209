"""Strategies: how a rank's gradients become the next iteration's weights.

A strategy is called when the gradients of each layer are ready, while the layers below are still computed, and when
back-propagation is complete. When `finish` returns, this rank has the next iteration's weights. Exact strategies add
the same numbers and differ only in the order of the additions.

- BulkAllreduce: one reduction of the whole vector after back-propagation, as in Algorithm 1 of Li et al. (MICRO 2018).
  The callable decides who executes it: the ranks (a ring, a hierarchy of rings), their NICs, a gradient method.
- Worker, Aggregator: the baseline of the same paper (section II-B), on ranks 0..p-1 and rank p.
- Overlapped: one reduction per layer, started when its gradients are ready and awaited before its update, as in
  Fig. 3b of Ma et al. (arXiv 2204.10943).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from softnic import codecs
from softnic.experiments.data import Floats
from softnic.experiments.replica import Replica
from softnic.experiments.timeline import Phase
from softnic.gradients import awp
from softnic.gradients.adt import WeightBroadcast, WeightTraffic
from softnic.gradients.worker_aggregator import GradientLeg
from softnic.ipc import regions
from softnic.mpi.communicator import Communicator

KINDS = {
    "wa": "workers send gradients to an aggregator (one more rank), which sends weights back;\n"
    f"{'':18}uncompressed, or with +PRECISION: {awp.HELP}",
    "inc": "the ranks sum over a ring, without an aggregator",
    "hierarchical": "the same over groups of ranks, and over the groups",
    "nic": "the NICs sum, and the rank waits",
    "host-overlapped": "a thread of the rank sums each layer during back-propagation",
    "nic-overlapped": "the NICs sum each layer during back-propagation",
}


@dataclass(frozen=True)
class StrategyName:
    """Name of a strategy: a kind and, where gradients are compressed, a codec, as in `inc+bounded:10`.

    An aggregator may send weights in reduced precision: `wa+adt:16`, `wa+bounded:10+awp:-0.002,4000`.
    """

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
            raise ValueError(
                f"{text!r} is not a strategy: {', '.join(KINDS)}, with +CODEC where gradients are compressed"
            )
        precision = None
        if parts and parts[-1].partition(":")[0] in (awp.FIXED, awp.ADAPTIVE):
            precision = str(awp.precision(parts.pop()))
            if kind != "wa":
                raise ValueError(f"{text!r} is not a strategy: only an aggregator (wa) sends weights")
        if len(parts) > 1:
            raise ValueError(
                f"{text!r} is not a strategy: `wa` takes a codec for gradients, then a precision for weights"
            )
        return cls(kind, str(codecs.get(parts[0])) if parts else None, precision)

    def __str__(self) -> str:
        return "+".join(filter(None, (self.kind, self.codec, self.precision)))

    @property
    def aggregators(self) -> int:
        """Number of ranks besides those that train."""
        return int(self.kind == "wa")


class Pending(Protocol):
    """A reduction in progress."""

    def Wait(self) -> Any:
        """Return when the array that the reduction was started with contains the result."""


class Strategy(ABC):
    """One rank's part in the exchange."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def ready(self, layer: int) -> None:  # noqa: B027  # most strategies wait for all layers
        """Handle a layer whose gradients are complete; its weights may change from now on."""

    @abstractmethod
    def finish(self) -> None:
        """Return when the weights are the next iteration's. Called after back-propagation."""


class CommunicatorLegs(GradientLeg):
    """Both legs between workers and aggregator, over a communicator whose last rank is the aggregator.

    With a `precision` the weights travel layer by layer, without one in one exact broadcast.
    """

    def __init__(self, comm: Communicator, codec: str | None, precision: awp.Precision | None) -> None:
        super().__init__(comm, comm.size - 1, codec)
        self._weights = None if precision is None else WeightBroadcast(comm, self.aggregator, precision)
        self.traffic = WeightTraffic() if self._weights is None else self._weights.traffic
        """Weights that the aggregator sent each worker, or that this worker received."""

    def publish(self, replica: Replica) -> None:
        """Send the aggregator's weights to all workers."""
        if self._weights is None:
            self._broadcast(replica.parameters)
        else:
            self._weights.publish(replica.updated_weights(), held=replica.rounded_weights())

    def fetch(self, replica: Replica) -> None:
        """Receive the aggregator's weights."""
        if self._weights is None:
            self._broadcast(replica.parameters)
        else:
            self._weights.receive(replica.updated_weights())

    def _broadcast(self, weights: Floats) -> None:
        self._comm.Bcast(weights, self.aggregator)
        self.traffic.original += weights.nbytes
        self.traffic.sent += weights.nbytes


class BulkAllreduce(Strategy):
    """One reduction of all gradients after back-propagation. `reduce` replaces them by the sum or mean over ranks."""

    def __init__(self, replica: Replica, reduce: Callable[[], object]) -> None:
        super().__init__(replica)
        self._reduce = reduce

    def finish(self) -> None:
        timeline = self._replica.timeline
        timeline.ready()
        timeline.enter(Phase.EXCHANGE)
        self._reduce()
        self._replica.update()


class Worker(Strategy):
    """Sends its gradients to the aggregator and receives weights."""

    def __init__(self, replica: Replica, legs: CommunicatorLegs) -> None:
        super().__init__(replica)
        self._legs = legs

    def finish(self) -> None:
        timeline = self._replica.timeline
        timeline.ready()
        timeline.enter(Phase.EXCHANGE)
        self._legs.send(self._replica.gradients)
        self._legs.fetch(self._replica)


class Aggregator(Strategy):
    """Receives the gradients of one worker after the other, adds them, takes the step, and publishes the weights.

    It receives one message at a time, so its link carries no more than one sender's rate, as a switch port would.
    Weights leave by broadcast, as in the paper's cost model (section VIII-D): uncompressed, because a gradient codec
    would harm them (section III-A), or each layer with as few bytes as Zhuang et al. allow (softnic.gradients.adt).

    With `mean` the step is taken with the mean of the gradients instead of their sum.
    """

    def __init__(self, replica: Replica, legs: CommunicatorLegs, workers: int, *, mean: bool = False) -> None:
        super().__init__(replica)
        self._legs = legs
        self._workers = workers
        self._mean = mean
        self._received: Floats = regions.empty(replica.gradients.size)

    def finish(self) -> None:
        gradients, timeline = self._replica.gradients, self._replica.timeline
        timeline.enter(Phase.EXCHANGE)
        self._legs.receive(gradients, 0)
        for worker in range(1, self._workers):
            timeline.enter(Phase.EXCHANGE)
            self._legs.receive(self._received, worker)
            timeline.enter(Phase.SUM)
            gradients += self._received
        if self._mean:
            gradients /= np.float32(self._workers)
        self._replica.update()
        timeline.enter(Phase.EXCHANGE)
        self._legs.publish(self._replica)


class Overlapped(Strategy):
    """Starts a layer's reduction when its gradients are ready, and continues back-propagation.

    With `in_flight` = 1 the trace is that of Fig. 3b: a reduction is awaited before the next one starts, and its layer
    is updated then. 0 is no limit: nothing is awaited before the end of back-propagation, and upper layers are updated
    while the gradients of lower ones are still exchanged.
    """

    def __init__(self, replica: Replica, begin: Callable[[Floats], Pending], in_flight: int = 0) -> None:
        super().__init__(replica)
        self._begin = begin
        self._limit = in_flight
        self._pending: deque[tuple[int, Pending]] = deque()

    def ready(self, layer: int) -> None:
        replica, timeline = self._replica, self._replica.timeline
        awaited = [self._wait()] if self._limit and len(self._pending) == self._limit else []
        timeline.ready(layer)
        timeline.enter(Phase.POST, layer)
        self._pending.append((layer, self._begin(replica.gradients[replica.slice_of(layer)])))
        for above in awaited:
            replica.update(above)

    def finish(self) -> None:
        while self._pending:
            self._replica.update(self._wait())

    def _wait(self) -> int:
        """Wait for the oldest reduction and return its layer."""
        layer, pending = self._pending.popleft()
        self._replica.timeline.enter(Phase.EXCHANGE, layer)
        pending.Wait()
        return layer
