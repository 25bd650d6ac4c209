"""What a gradient method is: it replaces every rank's gradients by one mean, and may send less than all of them for it.

A method is given the gradients of some parameters at a time (a bucket of PyTorch's, or all), by name. What it keeps
from one step to the next, it keeps by parameter, so that neither the cut into buckets nor their order matters; and it
counts steps by parameter. Its state is numpy arrays and numbers, and belongs into the rank's own checkpoint: training
goes on from there bit by bit as it would have done.

Every rank calls with the same names in the same order, and ends with the same bits. With one rank nothing crosses a
network; what a method leaves out, it leaves out all the same, so that one process can try a method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.comm.communicator import Communicator

Floats = npt.NDArray[np.float32]
Gradients = Mapping[str, Floats]
"""By parameter: a contiguous array of one dimension, to be replaced in place."""


class MethodError(ValueError):
    """A method that does not exist, a parameter that it does not take, or state or gradients that are not its own."""


@dataclass
class Stats:
    """What one rank handed to a method, and what that sent for it, summed over all calls."""

    calls: int = 0
    given_bytes: int = 0
    """Of gradients."""
    sent_bytes: int = 0
    """Of what stands for them: what this rank would have to send to a single other rank or server. How often it crosses
    which link is up to the collective; what crosses in the end, headers included, is counted by the NIC."""
    last: dict[str, float] = field(default_factory=dict)
    """What the method says about its last call."""

    @property
    def ratio(self) -> float:
        """Compression, as papers count it."""
        return self.given_bytes / self.sent_bytes if self.sent_bytes else 0.0

    def count(self, gradients: Gradients, sent_bytes: int, **last: float) -> None:
        """Adds a call."""
        self.calls += 1
        self.given_bytes += sum(gradient.nbytes for gradient in gradients.values())
        self.sent_bytes += sent_bytes
        self.last = last


class Method(ABC):
    """One rank's side of a method."""

    name: str
    """As `softnic.gradients.get` takes it, without parameters."""
    whole = False
    """Whether one call must have the gradients of all parameters."""
    momentum: float = 0.0
    """The method's own. Where it is not zero, the optimizer must have none."""

    def __init__(self) -> None:
        self.stats = Stats()
        self._steps: dict[str, int] = {}
        self._kept: dict[str, dict[str, Floats]] = {}

    @abstractmethod
    def average(self, comm: Communicator, gradients: Gradients) -> None:
        """Replaces the gradients by the mean over the ranks, as this method makes it. Raises CommError, as calls of a
        communicator do, and MethodError where a parameter is not as long as it was."""

    # -- by parameter --------------------------------------------------------------------------------------------------

    def steps(self, name: str) -> int:
        """How often a parameter's gradients were averaged before."""
        return self._steps.get(name, 0)

    def kept(self, what: str, name: str, size: int) -> Floats:
        """What is kept of a parameter under some heading, to be changed in place: zeros at first."""
        arrays = self._kept.setdefault(what, {})
        if name not in arrays:
            arrays[name] = np.zeros(size, np.float32)
        if arrays[name].size != size:
            raise MethodError(f"{self.name} keeps {arrays[name].size} elements of {name}, which has {size} now")
        return arrays[name]

    def _step(self, gradients: Gradients) -> None:
        """At the end of a call: counts it."""
        for name in gradients:
            self._steps[name] = self.steps(name) + 1

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that decides what the next call gives, copied: steps by parameter, and by heading and parameter what is
        kept. It differs from rank to rank."""
        kept = {
            what: {name: array.copy() for name, array in arrays.items()} for what, arrays in sorted(self._kept.items())
        }
        return {"method": self.name, "steps": dict(self._steps), "kept": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave. Raises MethodError for what another method gave."""
        if state.get("method") != self.name:
            raise MethodError(f"this is state of {state.get('method')!r}, not of {self.name!r}")
        self._steps = {name: int(steps) for name, steps in state["steps"].items()}
        self._kept = {
            what: {name: np.array(array, np.float32).reshape(-1) for name, array in arrays.items()}
            for what, arrays in state["kept"].items()
        }
