"""One rank's copy of a model, as trainer and strategies use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from softnic.experiments.data import Floats
from softnic.experiments.timeline import WHOLE, Timeline


class Replica(ABC):
    """A model over two flat vectors in registered memory, with its optimizer and its timeline.

    `layers` are the slices of the vectors that can be exchanged apart, from the inputs on.
    """

    def __init__(self, parameters: Floats, gradients: Floats, layers: Sequence[slice], timeline: Timeline) -> None:
        self.parameters = parameters
        self.gradients = gradients
        self.layers = layers
        self.timeline = timeline

    def slice_of(self, layer: int) -> slice:
        """Return the slice of a layer, or of WHOLE, in the flat vectors."""
        return slice(None) if layer == WHOLE else self.layers[layer]

    @abstractmethod
    def forward(self, inputs: Any, labels: Any) -> float:
        """Return the mean loss of a batch."""

    @abstractmethod
    def backward(self) -> Iterator[int]:
        """Compute the gradients of the last `forward`, and yield each layer whose gradients are complete."""

    @abstractmethod
    def update(self, layer: int = WHOLE) -> None:
        """Take the optimizer step of one layer, or of all, with the gradients."""

    @property
    @abstractmethod
    def named_gradients(self) -> Mapping[str, Floats]:
        """Views of the gradients by parameter; their shapes depend on the model."""

    @abstractmethod
    def error(self, inputs: Any, labels: Any) -> float:
        """Return the share of rows, 0..1, that are classified wrongly."""

    def forward_backward(self, inputs: Any, labels: Any) -> float:
        """Compute the gradients of a batch and return its mean loss."""
        loss = self.forward(inputs, labels)
        for _ in self.backward():
            pass
        return loss

    @abstractmethod
    def named(self, flat: Floats) -> dict[str, Floats]:
        """Return views of a flat vector by parameter, in the parameters' shapes."""

    @abstractmethod
    def updated_weights(self) -> dict[str, Floats]:
        """Return the weights that `update` changes, by name."""

    def rounded_weights(self) -> dict[str, Floats] | None:
        """Return the weights that an aggregator keeps as its workers have them. None: it keeps none."""
        return None
