"""Broadcast of weights from the rank that updates them to all others, each layer in a precision of its own.

ADT is the Approximate Data Transfer of Zhuang et al. (A2DTWP, section III). Its Bitpack keeps the most significant
bytes of every weight, its Bitunpack appends zeros: the codec truncate with 8, 16 or 24 bits, which the NICs apply.
Biases are sent in full (Fig. 1), as are all arrays of one dimension, such as the scales of a normalisation.

1. The root's precision policy (awp.py) observes the weights.
2. The root broadcasts one byte for each layer: the bits of its weights.
3. All layers of one precision are sent in one broadcast, those of few bits first.

The root keeps its own weights in full precision, as small updates would be lost in few bits. Errors are those of the
communicator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from softnic.gradients.awp import MOST_BITS, Array, FixedPrecision, Precision, Weights
from softnic.ipc import regions
from softnic.mpi.communicator import Communicator


@dataclass
class WeightTraffic:
    """Bytes of weights, as received by each rank but the root."""

    original: int = 0
    """As float32."""
    sent: int = 0
    """As sent, without headers."""

    @property
    def ratio(self) -> float:
        return self.original / self.sent if self.sent else 1.0


def packed(weights: Weights) -> dict[str, Array]:
    """Return the weights whose precision may be below 32 bits and that AWP observes: matrices and kernels."""
    return {name: array for name, array in weights.items() if array.ndim > 1}


def next_widths(precision: Precision, weights: Weights) -> dict[str, int]:
    """Have a policy observe updated weights, and return the bits in which each array is sent next."""
    adaptable = packed(weights)
    precision.observe(adaptable)
    return {name: precision.bits(name) if name in adaptable else MOST_BITS for name in weights}


class WeightBroadcast:
    """One rank's side of the broadcast.

    `precision` is used on the root only (None: 32 bits). Weights are float32 arrays by name; names, shapes and order
    are the same on every rank and in every call.
    """

    def __init__(self, comm: Communicator, root: int, precision: Precision | None = None) -> None:
        self._comm = comm
        self._root = root
        self._precision = precision or FixedPrecision()
        self._scratch: Array = np.empty(0, np.float32)
        self.traffic = WeightTraffic()
        """Of all calls."""
        self.widths: dict[str, int] = {}
        """Bits of each array in the last call."""

    def publish(self, weights: Weights, held: Weights | None = None) -> None:
        """Send weights, on the root. `held` are arrays that get the weights as received; they may be `weights`."""
        widths = next_widths(self._precision, weights)
        self._announce(widths)
        for message, parts in self._messages(weights):
            for name, part in parts.items():
                part[...] = weights[name]
            self._broadcast(message, widths[next(iter(parts))])
            for name, part in parts.items():
                if held is not None:
                    held[name][...] = part

    def receive(self, weights: Weights) -> None:
        """Receive weights into the arrays, on the other ranks."""
        self._announce(dict.fromkeys(weights, 0))
        for message, parts in self._messages(weights):
            self._broadcast(message, self.widths[next(iter(parts))])
            for name, part in parts.items():
                weights[name][...] = part

    def _announce(self, widths: Mapping[str, int]) -> None:
        announced = np.array(list(widths.values()), np.uint8)
        self._comm.Bcast(announced, self._root)
        self.widths = dict(zip(widths, announced.tolist(), strict=True))
        self.traffic.sent += announced.nbytes

    def _messages(self, weights: Weights) -> Iterator[tuple[Array, dict[str, Array]]]:
        """Yield the memory of each message, and its part for each array."""
        for width in sorted(set(self.widths.values())):
            arrays = {name: array for name, array in weights.items() if self.widths[name] == width}
            ends = np.cumsum([array.size for array in arrays.values()]).tolist()
            memory = self._memory(ends[-1])
            parts = np.split(memory, ends[:-1])
            yield memory, {name: part.reshape(arrays[name].shape) for name, part in zip(arrays, parts, strict=True)}

    def _broadcast(self, floats: Array, width: int) -> None:
        if width == MOST_BITS:
            self._comm.Bcast(floats, self._root)
        else:
            self._comm.Bcast_comp(floats, self._root, codec=f"truncate:{width}")
        self.traffic.original += floats.nbytes
        self.traffic.sent += floats.size * width // 8

    def _memory(self, count: int) -> Array:
        """Return registered memory, the same in every call."""
        if self._scratch.size < count:
            self._scratch = regions.empty(count)
        return self._scratch[:count]
