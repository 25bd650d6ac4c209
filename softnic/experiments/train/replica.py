"""One rank's copy of a model, and what every exchange of its gradients ends with: a step of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from softnic.experiments.train.data import Floats
from softnic.experiments.train.network import WHOLE, Network
from softnic.experiments.train.optimizer import Momentum
from softnic.experiments.train.timeline import Phase, Timeline


@dataclass(frozen=True)
class Replica:
    model: Network
    optimizer: Momentum
    timeline: Timeline
    master: Floats | None = None
    """What steps are taken on, where the model's own parameters are what came of it on the way to the workers.
    None: the parameters."""

    def update(self, layer: int = WHOLE) -> None:
        """Takes the step for a layer, or for all, with the gradients that the model holds for it."""
        self.timeline.enter(Phase.UPDATE, layer)
        weights = self.model.parameters if self.master is None else self.master
        self.optimizer.step(weights, self.model.gradients, self.model.part(layer))
