"""One rank's copy of a model, and what every exchange of its gradients ends with: a step of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from softnic.train.network import WHOLE, Network
from softnic.train.optimizer import Momentum
from softnic.train.timeline import Phase, Timeline


@dataclass(frozen=True)
class Replica:
    model: Network
    optimizer: Momentum
    timeline: Timeline

    def update(self, layer: int = WHOLE) -> None:
        """Takes the step for a layer, or for all, with the gradients that the model holds for it."""
        self.timeline.enter(Phase.UPDATE, layer)
        self.optimizer.step(self.model.parameters, self.model.gradients, self.model.part(layer))
