"""How ranks exchange gradients: one interface, and the few classes that all strategies are made of.

A strategy is told of each layer whose gradients are ready, while those below it still compute, and then that all are.
When `finish` returns, this rank has the weights of the next iteration. The same model, data and seed go through all of
them, and all add up the same numbers: exact ones differ by nothing but the order in which they add.

- Together: one exchange of the whole vector when back-propagation is through, as in Algorithm 1 of Li et al. (MICRO
  2018). Who executes it is the callable's affair: the rank itself (a ring, a hierarchy of rings) or its NIC.
- Worker, Aggregator: the baseline of the same paper (section II-B), on ranks 0..p-1 and rank p.
- Overlapped: an exchange a layer, begun when its gradients are ready and waited for before its update, as in Fig. 3b of
  Ma et al. (arXiv 2204.10943).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from softnic.experiments.data import Floats
from softnic.experiments.numpy_replica import NumpyReplica
from softnic.experiments.timeline import Phase
from softnic.ipc import regions

Reduce = Callable[[Floats], None]
"""Replaces a rank's array by the sum over all ranks; all of them end with the same bits."""


class Pending(Protocol):
    """An exchange that goes on."""

    def Wait(self) -> Any:
        """Returns when the sum is in the array that the exchange was begun with."""


Begin = Callable[[Floats], Pending]
"""The same as Reduce, but returns at once."""


class Strategy(Protocol):
    def ready(self, layer: int) -> None:
        """The gradients of a layer are complete, and its weights may change from now on."""

    def finish(self) -> None:
        """Back-propagation is through. Returns when the weights are the next iteration's."""


class Messages(Protocol):
    """What a worker and its aggregator need of a communicator, whichever way either leg goes."""

    def send(self, gradients: Floats, dest: int) -> None: ...

    def receive(self, gradients: Floats, source: int) -> None: ...

    def publish(self, replica: NumpyReplica) -> None:
        """The aggregator's weights go to all workers. Its model holds afterwards what theirs do."""

    def fetch(self, replica: NumpyReplica) -> None:
        """A worker's model gets them."""


class BulkAllreduce:
    """One exchange, of all gradients, when the last layer's are there."""

    def __init__(self, replica: NumpyReplica, reduce: Reduce) -> None:
        self._replica = replica
        self._reduce = reduce

    def ready(self, layer: int) -> None:
        """Nothing is sent before all are ready."""

    def finish(self) -> None:
        timeline = self._replica.timeline
        timeline.ready()
        timeline.enter(Phase.EXCHANGE)
        self._reduce(self._replica.model.gradients)
        self._replica.update()


class Worker:
    """Sends its gradients to the aggregator, and gets weights."""

    def __init__(self, replica: NumpyReplica, messages: Messages, aggregator: int) -> None:
        self._replica = replica
        self._messages = messages
        self._aggregator = aggregator

    def ready(self, layer: int) -> None:
        """The aggregator takes one message of each worker."""

    def finish(self) -> None:
        replica = self._replica
        replica.timeline.ready()
        replica.timeline.enter(Phase.EXCHANGE)
        self._messages.send(replica.model.gradients, self._aggregator)
        self._messages.fetch(replica)


class Aggregator:
    """Receives the gradients of one worker after the other, adds them up, takes the step, and hands out weights.

    It receives one message at a time, so no more than one sender's rate comes in: what a port of its switch would
    carry. Weights leave by broadcast, as the paper's cost model has it (section VIII-D), uncompressed, for they do not
    bear a gradient codec (section III-A); or each layer with as few bytes as Zhuang et al. find that it does bear
    (softnic.gradients.adt).
    """

    def __init__(self, replica: NumpyReplica, messages: Messages, workers: int) -> None:
        self._replica = replica
        self._messages = messages
        self._workers = workers
        self._received: Floats = regions.empty(replica.model.gradients.size)

    def serve(self) -> None:
        """One iteration."""
        model, timeline = self._replica.model, self._replica.timeline
        timeline.enter(Phase.EXCHANGE)
        self._messages.receive(model.gradients, 0)
        for worker in range(1, self._workers):
            timeline.enter(Phase.EXCHANGE)
            self._messages.receive(self._received, worker)
            timeline.enter(Phase.SUM)
            model.gradients += self._received
        self._replica.update()
        timeline.enter(Phase.EXCHANGE)
        self._messages.publish(self._replica)


class Overlapped:
    """Begins a layer's exchange when its gradients are ready, and goes on with back-propagation.

    With `in_flight` = 1 this is the trace of Fig. 3b: an exchange is waited for before the next one begins, and its
    layer is updated then. More in flight never wait for longer; 0 is no limit: nothing is waited for before
    back-propagation is through, and updates go on while the lower layers' gradients are still exchanged.
    """

    def __init__(self, replica: NumpyReplica, begin: Begin, in_flight: int = 0) -> None:
        self._replica = replica
        self._begin = begin
        self._limit = in_flight
        self._pending: deque[tuple[int, Pending]] = deque()

    def ready(self, layer: int) -> None:
        model, timeline = self._replica.model, self._replica.timeline
        waited = [self._wait()] if self._limit and len(self._pending) == self._limit else []
        timeline.ready(layer)
        timeline.enter(Phase.POST, layer)
        self._pending.append((layer, self._begin(model.gradients[model.slice_of(layer)])))
        for above in waited:
            self._replica.update(above)

    def finish(self) -> None:
        while self._pending:
            self._replica.update(self._wait())

    def _wait(self) -> int:
        """For the exchange that began first. Returns its layer."""
        layer, pending = self._pending.popleft()
        self._replica.timeline.enter(Phase.EXCHANGE, layer)
        pending.Wait()
        return layer
