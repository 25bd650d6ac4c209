"""The interface of gradient methods: each replaces every rank's gradients by one mean, which may be an approximation.

A method gets the gradients of some parameters at a time (a bucket of PyTorch's, or all of them), by name. It keeps its
state and counts steps by parameter, so neither the division into buckets nor their order matters. The state consists of
numpy arrays and numbers and belongs in the rank's own checkpoint, from which training continues bit by bit.

Every rank calls with the same names in the same order, and ends with the same bits. With one rank nothing crosses a
network, but the method drops the same gradients: a method can be tried in one process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.mpi.communicator import Communicator

Floats = npt.NDArray[np.float32]
Gradients = Mapping[str, Floats]
"""By parameter: a contiguous array of one dimension, to be replaced in place."""


class MethodError(ValueError):
    """An unknown method, a parameter that it does not take, or another method's state or gradients."""


@dataclass
class Stats:
    """Bytes that one rank gave to a method and that the method sent for them, summed over all calls."""

    calls: int = 0
    given_bytes: int = 0
    """Bytes of gradients."""
    sent_bytes: int = 0
    """Bytes that this rank would send to a single other rank or server. How often they cross which link depends on the
    collective; the NIC counts what crosses in the end, with headers."""
    last: dict[str, float] = field(default_factory=dict)
    """Figures of the method about its last call."""

    @property
    def ratio(self) -> float:
        """Compression ratio, as papers count it."""
        return self.given_bytes / self.sent_bytes if self.sent_bytes else 0.0

    def count(self, gradients: Gradients, sent_bytes: int, **last: float) -> None:
        """Add a call with `gradients` that sent `sent_bytes`; `last` has further figures of it."""
        self.calls += 1
        self.given_bytes += sum(gradient.nbytes for gradient in gradients.values())
        self.sent_bytes += sent_bytes
        self.last = last


class Method(ABC):
    """One rank's side of a gradient method."""

    name: str
    """As `softnic.gradients.get` takes it, without parameters."""
    whole = False
    """Whether every call must have the gradients of all parameters."""
    momentum: float = 0.0
    """Momentum that the method applies. If it is not zero, the optimizer must have none."""

    def __init__(self) -> None:
        self.stats = Stats()
        self._steps: dict[str, int] = {}
        self._kept: dict[str, dict[str, Floats]] = {}

    @abstractmethod
    def average(self, comm: Communicator, gradients: Gradients) -> None:
        """Replace the gradients by their mean over the ranks, as this method computes it.

        Parameters
        ----------
        comm : Communicator
            All of its ranks call with the same names in the same order.
        gradients : Gradients
            Contiguous one-dimensional float32 arrays by parameter, overwritten in place.

        Raises
        ------
        CommError
            As calls of a communicator do.
        MethodError
            A parameter has another length than before.
        """

    # By parameter

    def steps(self, name: str) -> int:
        """Return how often the gradients of the parameter `name` were averaged before."""
        return self._steps.get(name, 0)

    def kept(self, key: str, name: str, size: int) -> Floats:
        """Return the array of `size` kept under `key` for the parameter `name`, zeros at first, to change in place."""
        arrays = self._kept.setdefault(key, {})
        if name not in arrays:
            arrays[name] = np.zeros(size, np.float32)
        if arrays[name].size != size:
            raise MethodError(f"{self.name} keeps {arrays[name].size} elements of {name}, which has {size} now")
        return arrays[name]

    def _step(self, gradients: Gradients) -> None:
        """Count a step of these parameters, at the end of a call."""
        for name in gradients:
            self._steps[name] = self.steps(name) + 1

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state: steps by parameter, and kept arrays by key and parameter.

        It differs between ranks, so each rank saves its own.
        """
        kept = {
            key: {name: array.copy() for name, array in arrays.items()} for key, arrays in sorted(self._kept.items())
        }
        return {"method": self.name, "steps": dict(self._steps), "kept": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`, a result of `state_dict`. Raises MethodError for that of another method."""
        if state.get("method") != self.name:
            raise MethodError(f"this is state of {state.get('method')!r}, not of {self.name!r}")
        self._steps = {name: int(steps) for name, steps in state["steps"].items()}
        self._kept = {
            key: {name: np.array(array, np.float32).reshape(-1) for name, array in arrays.items()}
            for key, arrays in state["kept"].items()
        }
