"""How a step's gradients become the next step's weights: by an average that every rank takes its step on, or by an
aggregator, which takes the step for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from softnic.experiments.torch_replica import TorchReplica
from softnic.gradients import Gradients
from softnic.gradients.worker_aggregator import WorkerAggregator

Average = Callable[[Gradients], None]
"""Replaces a rank's gradients by the ranks' mean, as some method makes it; all ranks end with the same bits."""


class Exchange(Protocol):
    def finish(self) -> None:
        """A worker's gradients of a step are there. Returns when its weights are those of the next."""


class Together:
    """Every rank averages, and takes the same step."""

    def __init__(self, replica: TorchReplica, average: Average) -> None:
        self._replica = replica
        self._average = average

    def finish(self) -> None:
        self._average(self._replica.gradients)
        self._replica.update()


class Aggregated:
    """One more rank than there are workers takes the step. Made on all ranks at a time: the first weights are sent."""

    def __init__(self, replica: TorchReplica, ends: WorkerAggregator) -> None:
        self._replica = replica
        self._ends = ends
        ends.publish(replica.parameters)

    def finish(self) -> None:
        self._ends.collect(self._replica.gradients)
        if self._ends.aggregates:
            self._replica.update()
        self._ends.publish(self._replica.parameters)
