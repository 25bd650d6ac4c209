"""The precision in which weights are sent: adaptive (AWP), fixed, and that of an oracle.

AWP is Adaptive Weight Precision, Algorithm 1 of Zhuang et al., "Reducing Data Motion to Accelerate the Training of Deep
Neural Networks" (A2DTWP). It depends on the weights only; adt.py sends them in the precision that it chooses.

1. The weights of every layer are sent with B = 8 bits at first. Each layer has a counter, 0 at first.
2. After each batch, take the l2-norm |W| of each layer's weights, in full precision.
3. Its relative change is delta = (|W_i| - |W_{i-1}|) / |W_{i-1}|, with its sign.
4. If delta < T, the layer's counter is incremented. Otherwise it is unchanged.
5. When the counter reaches INTERVAL, the layer gets N more bits (32 at most), and its counter is reset to 0.

Weights are sent in whole bytes (section III-A): 14 bits take two. In the paper, residual networks trained best with one
precision for each building block instead of each layer (section IV-B); `blocks` groups layers into blocks, whose norm
is that of all of their weights.

T depends on model and learning rate. The paper uses the mean change of all layers' norms over a short monitored period
(section V-A): `Monitor`. It is negative there, because norms shrink. Where norms grow it is positive, and precision
increases when they grow more slowly than in the monitored period.

Not worthwhile where no weights are sent (all-reduce, DDP), where gradients take longer than weights on the link, or for
trainings of a few hundred steps, in which the first eight bits cost more than the saved bytes gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Weights = Mapping[str, Array]
"""Arrays of any shape by layer (or parameter), with the same names in every call."""

FIRST_BITS = 8
MOST_BITS = 32
FIXED = "adt"
ADAPTIVE = "awp"
HELP = "adt:BITS (8, 16, 24, 32), or awp:T,INTERVAL[,N] as in awp:-0.002,4000"


class Precision(Protocol):
    """A policy that chooses the bits with which each layer's weights are sent."""

    def observe(self, weights: Weights) -> None:
        """Observe the updated weights, after every batch. The first call only provides a reference for the second; it
        may precede the first batch."""

    def bits(self, layer: str) -> int:
        """Return the current bits of this layer's weights: 8, 16, 24 or 32."""

    def state_dict(self) -> dict[str, Any]:
        """Return numbers by layer, for a checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state_dict`."""


def whole_bytes(bits: int) -> int:
    """Round a number of bits up to whole bytes (section III-A), 32 bits at most."""
    return min(MOST_BITS, -(-bits // 8) * 8)


@dataclass(frozen=True)
class FixedPrecision:
    """A fixed precision for all layers. 32 bits are the paper's baseline; its oracle is one of these."""

    width: int = MOST_BITS

    def __post_init__(self) -> None:
        if self.width not in range(8, MOST_BITS + 1, 8):
            raise ValueError(f"weights are sent with 8, 16, 24 or 32 bits, not {self.width}")

    def observe(self, weights: Weights) -> None:
        """Ignored: the precision does not depend on the weights."""

    def bits(self, layer: str) -> int:  # noqa: ARG002
        return self.width

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Ignored: there is no state."""

    def __str__(self) -> str:
        return f"{FIXED}:{self.width}"


class Norms:
    """The l2-norm of each block's weights, and its change from one call to the next."""

    def __init__(self, block_of: Callable[[str], str] = str) -> None:
        self._block_of = block_of
        self.last: dict[str, float] = {}

    def changes(self, weights: Weights) -> dict[str, float]:
        """Return delta by block, without new blocks and blocks whose norm was zero."""
        squares: dict[str, float] = {}
        for layer, array in weights.items():
            block = self._block_of(layer)
            squares[block] = squares.get(block, 0.0) + _square(array)
        norms = {block: float(np.sqrt(square)) for block, square in squares.items()}
        found = {block: norm / last - 1 for block, norm in norms.items() if (last := self.last.get(block))}
        self.last = norms
        return found


class AWP:
    """Adaptive Weight Precision: Algorithm 1 of the paper.

    Parameters
    ----------
    threshold : float
        T, the change of a norm below which a layer's counter is incremented.
    interval : int
        INTERVAL, in batches.
    more_bits : int
        N, the bits added at a time.
    first_bits : int
        B, the bits at first.
    blocks : Callable[[str], str]
        Maps a layer's name to that of its block (`leading` for torch's names). Default: each layer is a block.

    Raises
    ------
    ValueError
        An argument is out of range.
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
        """Make a policy from `T,INTERVAL` or `T,INTERVAL,N`. Raises ValueError."""
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
    """Computes T from a monitored period: the mean change of all layers' norms (section V-A)."""

    def __init__(self, blocks: Callable[[str], str] = str) -> None:
        self._norms = Norms(blocks)
        self._changes: list[float] = []

    def observe(self, weights: Weights) -> None:
        self._changes += self._norms.changes(weights).values()

    @property
    def threshold(self) -> float:
        """T. Raises ValueError before two observations of weights that are not all zero."""
        if not self._changes:
            raise ValueError("a change needs the weights before and after a batch; observe both")
        return float(np.mean(self._changes))


def leading(parts: int) -> Callable[[str], str]:
    """Return a mapping of dotted names to blocks by their first parts.

    `leading(2)` maps `layer1.0.conv1.weight` and `layer1.0.conv2.weight` to `layer1.0`, and `fc.weight` to itself.
    """
    return lambda name: ".".join(name.split(".")[:parts])


def oracle(reached: Mapping[int, float | None]) -> int | None:
    """Return the fixed precision whose training reached an accuracy at the lowest cost.

    This is the paper's oracle (section V-A), the comparator of AWP.

    Parameters
    ----------
    reached : Mapping[int, float | None]
        By precision in bits, the time (or bytes) after which its training reached the accuracy; None: it did not.

    Returns
    -------
    int or None
        Of equal costs the one with fewer bits; None if no training reached the accuracy.
    """
    found = [(cost, bits) for bits, cost in reached.items() if cost is not None]
    return min(found)[1] if found else None


def precision(text: str, blocks: Callable[[str], str] = str) -> Precision:
    """Make a policy from a text such as `adt:16` or `awp:-0.002,4000,8`. Raises ValueError."""
    kind, _, rest = text.partition(":")
    try:
        if kind == FIXED:
            return FixedPrecision(int(rest))
        if kind == ADAPTIVE:
            return AWP.parse(rest, blocks)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a precision of weights: {error}; {HELP}") from error
    raise ValueError(f"{text!r} is not a precision of weights: {HELP}")


def _square(array: Array) -> float:
    """Return |W|^2, summed in float64 to resolve changes of 1e-5."""
    flat = array.reshape(-1)
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))
