"""How many bits a layer's weights travel with: AWP, fixed, and what an oracle would have taken.

AWP is Adaptive Weight Precision, Algorithm 1 of Zhuang et al., "Reducing Data Motion to Accelerate the Training of Deep
Neural Networks" (A2DTWP). It looks at nothing but the weights, and sends nothing; adt.py sends what it decides.

1. The weights of every layer travel with B = 8 bits at first. A counter of each layer is 0.
2. After each batch, take the l2-norm |W| of each layer's weights, in full precision.
3. Its relative change is delta = (|W_i| - |W_{i-1}|) / |W_{i-1}|, with its sign.
4. Where delta < T, the layer's counter goes up by one. It does not go back where delta is not.
5. Where the counter has come to INTERVAL, the layer gets N bits more (32 at most), and its counter is 0 again.

The weights travel in whole bytes (section III-A): 14 bits take two. Residual networks did best in the paper with one
precision a building block instead of a layer (section IV-B); `blocks` says which layers belong together, their norm is
that of all of their weights.

T depends on model and rate. The paper takes the mean change of all layers' norms over a short monitored period
(section V-A): `Monitor`. It is negative there, because norms shrink; where they grow, it comes out positive, and means
that precision grows when the norms grow more slowly than they did.

NOT worth it where no weights are sent (all-reduce, DDP), where gradients take longer than weights to cross the link, or
for trainings of a few hundred steps, which lose more to the first eight bits than fewer bytes give back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Weights = Mapping[str, Array]
"""By layer (or parameter), arrays of any shape; the same names at every call."""

FIRST_BITS = 8
MOST_BITS = 32
FIXED = "adt"
ADAPTIVE = "awp"
HELP = "adt:BITS (8, 16, 24, 32), or awp:T,INTERVAL[,N] as in awp:-0.002,4000"


class Precision(Protocol):
    """Decides with how many bits each layer's weights travel."""

    def observe(self, weights: Weights) -> None:
        """To be called with the updated weights after every batch. The first look only says what the next one is
        compared with; it may as well come before the first batch."""

    def bits(self, layer: str) -> int:
        """Bits of a weight of this layer now: 8, 16, 24 or 32."""

    def state_dict(self) -> dict[str, Any]:
        """Numbers by layer, for a checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was taken."""


def whole_bytes(bits: int) -> int:
    """The bits that weights of so many bits travel with: the next multiple of 8 (section III-A), 32 at most."""
    return min(MOST_BITS, -(-bits // 8) * 8)


@dataclass(frozen=True)
class FixedPrecision:
    """The same precision for all layers, all the time: 32 is the paper's baseline; its oracle is one of these."""

    width: int = MOST_BITS

    def __post_init__(self) -> None:
        if self.width not in range(8, MOST_BITS + 1, 8):
            raise ValueError(f"weights travel with 8, 16, 24 or 32 bits, not {self.width}")

    def observe(self, weights: Weights) -> None:
        """Nothing depends on the weights."""

    def bits(self, layer: str) -> int:  # noqa: ARG002
        return self.width

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is no state."""

    def __str__(self) -> str:
        return f"{FIXED}:{self.width}"


class Norms:
    """The l2-norm of each block's weights, and how it changes from one look to the next."""

    def __init__(self, block_of: Callable[[str], str] = str) -> None:
        self._block_of = block_of
        self.last: dict[str, float] = {}

    def changes(self, weights: Weights) -> dict[str, float]:
        """delta by block. Left out: blocks seen for the first time, and those whose norm was zero."""
        squares: dict[str, float] = {}
        for layer, array in weights.items():
            block = self._block_of(layer)
            squares[block] = squares.get(block, 0.0) + _square(array)
        norms = {block: float(np.sqrt(square)) for block, square in squares.items()}
        found = {block: norm / last - 1 for block, norm in norms.items() if (last := self.last.get(block))}
        self.last = norms
        return found


class AWP:
    """Algorithm 1. `threshold` is T, `interval` INTERVAL (batches), `more_bits` N.

    `blocks` maps a layer's name to its block's (`leading` for torch's names); without it every layer is one of its own.
    """

    def __init__(
        self,
        threshold: float,
        interval: int,
        more_bits: int = 8,
        *,
        first_bits: int = FIRST_BITS,
        blocks: Callable[[str], str] = str,
    ) -> None:
        if not np.isfinite(threshold) or interval < 1 or more_bits < 1 or not 1 <= first_bits <= MOST_BITS:
            raise ValueError(f"T must be a number, INTERVAL and N 1 or more, and the first bits 1..{MOST_BITS}")
        self.threshold, self.interval, self.more_bits, self.first_bits = threshold, interval, more_bits, first_bits
        self._block_of = blocks
        self._norms = Norms(blocks)
        self._bits: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    @classmethod
    def parse(cls, text: str, blocks: Callable[[str], str] = str) -> Self:
        """Of `T,INTERVAL` or `T,INTERVAL,N`. Raises ValueError."""
        threshold, *counts = text.split(",")
        if not 1 <= len(counts) <= 2:
            raise ValueError(f"{text!r}: T,INTERVAL or T,INTERVAL,N is expected, as in -0.002,4000")
        return cls(float(threshold), *map(int, counts), blocks=blocks)

    def observe(self, weights: Weights) -> None:
        for block, change in self._norms.changes(weights).items():
            if not change < self.threshold:
                continue
            counted = self._counts.get(block, 0) + 1
            if counted == self.interval:
                self._bits[block] = min(MOST_BITS, self._bits.get(block, self.first_bits) + self.more_bits)
                counted = 0
            self._counts[block] = counted

    def bits(self, layer: str) -> int:
        return whole_bytes(self._bits.get(self._block_of(layer), self.first_bits))

    def state_dict(self) -> dict[str, Any]:
        return {"bits": dict(self._bits), "counts": dict(self._counts), "norms": dict(self._norms.last)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._bits, self._counts = dict(state["bits"]), dict(state["counts"])
        self._norms.last = dict(state["norms"])

    def __str__(self) -> str:
        return f"{ADAPTIVE}:{self.threshold:g},{self.interval},{self.more_bits}"


class Monitor:
    """Watches a training for a while and gives T: the mean change of all layers' norms (section V-A)."""

    def __init__(self, blocks: Callable[[str], str] = str) -> None:
        self._norms = Norms(blocks)
        self._changes: list[float] = []

    def observe(self, weights: Weights) -> None:
        self._changes += self._norms.changes(weights).values()

    @property
    def threshold(self) -> float:
        """Raises ValueError before two looks at weights that are not all zero."""
        if not self._changes:
            raise ValueError("a change needs the weights before and after a batch; observe both")
        return float(np.mean(self._changes))


def leading(parts: int) -> Callable[[str], str]:
    """Blocks by the first parts of dotted names: `leading(2)` puts `layer1.0.conv1.weight` and `layer1.0.conv2.weight`
    into `layer1.0`, and leaves `fc.weight` alone."""
    return lambda name: ".".join(name.split(".")[:parts])


def oracle(reached: Mapping[int, float | None]) -> int | None:
    """Of the precisions in bits that trainings were made with, the one that first came to the accuracy asked for, with
    the time (or bytes) it took; None: it did not. Of equals the one with fewer bits; None where none came to it.

    The paper's oracle (section V-A): known only when all are through, and what AWP is measured by.
    """
    found = [(cost, bits) for bits, cost in reached.items() if cost is not None]
    return min(found)[1] if found else None


def precision(text: str, blocks: Callable[[str], str] = str) -> Precision:
    """The policy of `adt:16` or `awp:-0.002,4000,8`. Raises ValueError."""
    kind, _, rest = text.partition(":")
    try:
        if kind == FIXED:
            return FixedPrecision(int(rest))
        if kind == ADAPTIVE:
            return AWP.parse(rest, blocks)
    except ValueError as error:
        raise ValueError(f"{text!r} is no precision of weights: {error}; {HELP}") from error
    raise ValueError(f"{text!r} is no precision of weights: {HELP}")


def _square(array: Array) -> float:
    """|W|^2, summed in float64: a change of 1e-5 must show."""
    flat = array.reshape(-1)
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))
