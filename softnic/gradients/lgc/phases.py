"""The common part of both LGC methods: three phases, accumulation, and counts of sent bytes by phase."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softnic.gradients.flat import cut, zero_nonfinite
from softnic.gradients.lgc.autoencoder import RATE, Autoencoder
from softnic.gradients.lgc.selection import ORDERS, Layout, SelectedIndices, layout
from softnic.gradients.method import Floats, Gradients, Method, MethodError
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator

FULL, LEARN, COMPRESSED = "full", "learn", "compressed"
PHASES = (FULL, LEARN, COMPRESSED)
TRAINER = 0
"""The rank that trains the autoencoder; of a parameter server the master, which is a worker as well."""


@dataclass
class PhaseTraffic:
    """Bytes that one rank gave and sent in the calls of a phase, counted as in `Stats`."""

    calls: int = 0
    given: int = 0
    sent: int = 0
    """To the other nodes, or to the master."""
    covered_given: int = 0
    covered_sent: int = 0
    """Those of the covered layers: all but the first and the last. Indices of the last layer are included, as they are
    packed with the others."""
    down: int = 0
    """From the master to a worker. Not included in `sent`, as in the paper."""
    weights: int = 0
    """Weights of the autoencoder, sent once. Not included in `sent`."""

    @property
    def ratio(self) -> float:
        """Compression ratio of all layers."""
        return self.given / self.sent if self.sent else 0.0

    @property
    def covered_ratio(self) -> float:
        """Compression ratio of the covered layers."""
        return self.covered_given / self.covered_sent if self.covered_sent else 0.0


@dataclass
class Sent:
    """Bytes that a rank sent in one step, without the first layer."""

    covered: int = 0
    last: int = 0
    down: int = 0
    weights: int = 0
    loss: float = 0.0
    """The autoencoder's reconstruction loss, if this rank trained it."""


@dataclass
class PhaseResult:
    """A step's result: the same on every rank, except for `sent_indices`."""

    sent_indices: SelectedIndices
    """The elements of this rank's accumulated gradients that are sent."""
    indices: SelectedIndices
    values: Floats
    """The mean at these indices; it is zero elsewhere."""
    sent: Sent = field(default_factory=Sent)


class Lgc(Method):
    """Base of both methods. Subclasses implement the exchange of the second and the third phase."""

    whole = True

    def __init__(
        self,
        share: float = 0.001,
        *,
        full: int = 200,
        learn: int = 300,
        momentum: float = 0.0,
        order: str = "value",
        first: str = "",
        last: str = "",
        rate: float = RATE,
        seed: int = 0,
    ) -> None:
        """`share`: fraction of each parameter that is selected. `full`, `learn`: steps of the first two phases.
        `momentum`: of the correction; the optimizer must then have none. `order`, `first`, `last`: see selection.py.
        `rate`: learning rate of the autoencoder."""
        super().__init__()
        if not 0 < share <= 1 or full < 0 or learn < 1 or not 0 <= momentum < 1 or order not in ORDERS:
            raise MethodError(
                f"share {share} must be in (0, 1], full {full} at least 0, learn {learn} at least 1, "
                f"momentum {momentum} in [0, 1), order {order!r} one of {', '.join(ORDERS)}"
            )
        self.traffic = {phase: PhaseTraffic() for phase in PHASES}
        self._share, self._full, self._learn, self.momentum = share, int(full), int(learn), momentum
        self._order, self._first, self._last = order, str(first), str(last)
        self._rate, self._seed = rate, int(seed)
        self._layout: Layout | None = None
        self._autoencoder: Autoencoder | None = None

    def phase(self, step: int) -> str:
        """Return the phase of a step, counted from 0."""
        if step < self._full:
            return FULL
        return LEARN if step < self._full + self._learn else COMPRESSED

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        if self._layout is None:
            self._layout = layout(gradients, self._share, self._first, self._last)
        given = self._layout
        if set(gradients) != {*given.first, *given.names}:
            raise MethodError(f"{self.name} needs the gradients of all parameters in every call")
        step = self.steps(next(iter(gradients)))
        phase = self.phase(step)
        whole = list(gradients) if phase == FULL else list(given.first)
        if not all(np.isfinite(gradient).all() for gradient in gradients.values()):
            gradients[whole[0]][0] = np.nan  # all ranks must see it, whatever is selected
        outcome = None
        with np.errstate(over="ignore", invalid="ignore"):
            if whole:
                means = mean_of(comm, np.concatenate([self._velocity(name, gradients[name]) for name in whole]))
                for _, gradient, mean in cut(means, {name: gradients[name] for name in whole}):
                    gradient[:] = mean
            if phase != FULL and given.names:
                outcome = self._sparse(comm, given, step, self._accumulated(given, gradients))
                self._clear_sent(given, outcome.sent_indices)
                _place(given, gradients, outcome)
        for arrays in self._kept.values():
            for array in arrays.values():
                zero_nonfinite(array)
        self._step(gradients)
        self._count(gradients, whole, phase, outcome.sent if outcome else Sent())

    @abstractmethod
    def _sparse(self, comm: Communicator, given: Layout, step: int, vector: Floats) -> PhaseResult:
        """Exchange the mean of the second or third phase. `vector`: this rank's accumulated gradients."""

    def _trains(self, step: int) -> bool:
        return self.phase(step) == LEARN

    def _ends_training(self, step: int) -> bool:
        return step == self._full + self._learn - 1

    def _random_rank(self, step: int, size: int) -> int:
        """Return a random rank, the same on all ranks."""
        return int(np.random.default_rng([self._seed, step]).integers(size))

    def _velocity(self, name: str, gradient: Floats) -> Floats:
        """Return the gradients, with momentum if there is one."""
        if not self.momentum:
            return gradient
        velocity = self.kept("velocity", name, gradient.size)
        velocity *= np.float32(self.momentum)
        velocity += gradient
        return velocity

    def _accumulated(self, given: Layout, gradients: Gradients) -> Floats:
        vector = np.empty(given.starts[-1], np.float32)
        for name, part, _ in given.parts():
            accumulated = self.kept("accumulated", name, gradients[name].size)
            accumulated += self._velocity(name, gradients[name])
            vector[part] = accumulated
        return vector

    def _clear_sent(self, given: Layout, sent: SelectedIndices) -> None:
        """Clear the accumulated gradients that were sent, and their momentum (factor masking)."""
        for name, part, selected in given.parts():
            inside = sent[selected] - np.uint32(part.start)
            for kept in ("accumulated", "velocity") if self.momentum else ("accumulated",):
                self.kept(kept, name, part.stop - part.start)[inside] = 0

    def _count(self, gradients: Gradients, whole: list[str], phase: str, sent: Sent) -> None:
        assert self._layout is not None
        dense = sum(gradients[name].nbytes for name in whole)
        traffic = self.traffic[phase]
        traffic.calls += 1
        traffic.given += sum(gradient.nbytes for gradient in gradients.values())
        traffic.sent += dense + sent.covered + sent.last
        traffic.covered_given += 4 * self._layout.covered_words
        traffic.covered_sent += 4 * self._layout.covered_words if phase == FULL else sent.covered
        traffic.down += sent.down
        traffic.weights += sent.weights
        last = {"loss": sent.loss} if sent.loss else {}
        self.stats.count(gradients, dense + sent.covered + sent.last + sent.weights, **last)

    # Checkpoints

    def _autoencoder_of(self, size: int) -> Autoencoder:
        """Return this rank's autoencoder, made at its first use with the same initial weights on every rank."""
        if self._autoencoder is None:
            self._autoencoder = self._new_autoencoder(size)
        return self._autoencoder

    @abstractmethod
    def _new_autoencoder(self, decoders: int) -> Autoencoder:
        """Make an autoencoder, with this number of decoders if it has one for each rank."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self._autoencoder is not None:
            state["autoencoder"] = self._autoencoder.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._autoencoder = None
        if (stored := state.get("autoencoder")) is not None:
            self._autoencoder_of(int(stored["decoders"])).load_state_dict(stored)


def mean_of(comm: Communicator, values: Floats) -> Floats:
    """Return the exact mean of all ranks' arrays."""
    mean = values * np.float32(1 / comm.size)
    comm.Allreduce(IN_PLACE, mean)
    return mean


def _place(given: Layout, gradients: Gradients, outcome: PhaseResult) -> None:
    mean = np.zeros(given.starts[-1], np.float32)
    mean[outcome.indices] = outcome.values
    for name, part, _ in given.parts():
        gradients[name][:] = mean[part]
