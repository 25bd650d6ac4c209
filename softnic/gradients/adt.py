"""The leg of the weights: from the rank that updates them to all others, each layer with as many bytes as it may take.

ADT is the Approximate Data Transfer of Zhuang et al. (A2DTWP, section III). Its Bitpack keeps the most significant
bytes of every weight, its Bitunpack puts zeros behind them: codec truncate with 8, 16 or 24 bits, which NICs apply on
the way. Biases travel whole (Fig. 1), as does all that has one dimension only, such as the scales of a normalisation.

1. The root lets its precision policy (awp.py) look at the weights, if it has one that looks.
2. It broadcasts one byte a layer: the bits that its weights come with.
3. All layers of one precision go in one broadcast, few bits first, exact ones last.

The root's own weights stay as they are, in full precision; its updates would be lost in few bits. Errors are those of
the communicator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from softnic.comm.communicator import Communicator
from softnic.gradients.awp import MOST_BITS, Array, FixedPrecision, Precision, Weights
from softnic.ipc import regions


@dataclass
class WeightTraffic:
    """Bytes that one rank was sent, or that each of the others was."""

    original: int = 0
    """As float32."""
    sent: int = 0
    """As they travel, without headers of any kind."""

    @property
    def ratio(self) -> float:
        return self.original / self.sent if self.sent else 1.0


def packed(weights: Weights) -> dict[str, Array]:
    """Those whose precision may be less than 32 bits, and which AWP looks at: matrices and kernels."""
    return {name: array for name, array in weights.items() if array.ndim > 1}


class WeightBroadcast:
    """One end of it, on the root and on every other rank of a communicator.

    `precision` counts on the root only (None: 32 bits). Weights are named float32 arrays; the same names, shapes and
    order on every rank and in every call.
    """

    def __init__(self, comm: Communicator, root: int, precision: Precision | None = None) -> None:
        self._comm = comm
        self._root = root
        self._precision = precision or FixedPrecision()
        self._scratch: Array = np.empty(0, np.float32)
        self.traffic = WeightTraffic()
        """Since the beginning."""
        self.widths: dict[str, int] = {}
        """Bits of each array when it was sent last."""

    def publish(self, weights: Weights, held: Weights | None = None) -> None:
        """The root's part. `held` are arrays that get what the other ranks will have; they may be `weights`."""
        adaptable = packed(weights)
        self._precision.observe(adaptable)
        widths = {name: self._precision.bits(name) if name in adaptable else MOST_BITS for name in weights}
        self._announce(widths)
        for message, parts in self._messages(weights):
            for name, part in parts.items():
                part[...] = weights[name]
            self._broadcast(message, widths[next(iter(parts))])
            for name, part in parts.items():
                if held is not None:
                    held[name][...] = part

    def receive(self, weights: Weights) -> None:
        """The others' part: fills the arrays."""
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
        """Room for the floats of each message, and the part of it that is each array's."""
        for width in sorted(set(self.widths.values())):
            arrays = {name: array for name, array in weights.items() if self.widths[name] == width}
            ends = np.cumsum([array.size for array in arrays.values()]).tolist()
            room = self._room(ends[-1])
            pieces = np.split(room, ends[:-1])
            yield room, {name: piece.reshape(arrays[name].shape) for name, piece in zip(arrays, pieces, strict=True)}

    def _broadcast(self, floats: Array, width: int) -> None:
        if width == MOST_BITS:
            self._comm.Bcast(floats, self._root)
        else:
            self._comm.Bcast_comp(floats, self._root, codec=f"truncate:{width}")
        self.traffic.original += floats.nbytes
        self.traffic.sent += floats.size * width // 8

    def _room(self, count: int) -> Array:
        """Memory that the NIC reads and writes in place, the same at every call."""
        if self._scratch.size < count:
            self._scratch = regions.empty(count)
        return self._scratch[:count]
