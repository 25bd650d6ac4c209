"""Information that nodes' gradients have in common: entropy and mutual information by histograms.

Section III of Abrahamyan et al. (Learned Gradient Compression, 2021) quantises gradients uniformly to 2^32 levels and
counts. With n elements and far more than n levels, every value and every pair of values occurs once: then both
entropies and the joint entropy are log2(n), and so is the mutual information, even between noise and noise. So the
number of levels is an argument here, and `estimate` also gives the figure for the second node's values in random order,
which have no information in common with the first: only the excess over that figure is information.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic.gradients.method import Floats, MethodError

PAPER_LEVELS = 1 << 32
LEVELS = 64


@dataclass(frozen=True)
class Information:
    """Information of the gradients a and b of one layer on two nodes, in bits an element."""

    entropy: float
    """H(b), the marginal entropy."""
    conditional: float
    """H(b | a)."""
    mutual: float
    """I(a; b) = H(b) - H(b | a), equation 1."""
    by_chance: float
    """The same estimate of I for a and a shuffled b, which have nothing in common."""

    @property
    def common(self) -> float:
        """Fraction of b's information that a has, as in the paper."""
        return self.mutual / self.entropy if self.entropy else 0.0

    @property
    def common_beyond_chance(self) -> float:
        """The same without the part that the estimate finds in noise."""
        return max(0.0, self.mutual - self.by_chance) / self.entropy if self.entropy else 0.0


def estimate(a: Floats, b: Floats, levels: int = LEVELS, seed: int = 0) -> Information:
    """Estimate the information that two arrays have in common.

    Parameters
    ----------
    a, b : Floats
        One-dimensional arrays of the same length, all elements finite.
    levels : int
        Of the quantisation between the smallest and the largest value of both, 2 to 2^32.
    seed : int
        Of the random order for `by_chance`.

    Raises
    ------
    MethodError
        The arguments are not as described.
    """
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise MethodError(f"two arrays of one length are needed, not {a.shape} and {b.shape}")
    if not 2 <= levels <= PAPER_LEVELS:
        raise MethodError(f"{levels} levels are not in 2 to 2^32")
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        raise MethodError("gradients that are not finite have no histogram")
    low, high = float(min(a.min(), b.min())), float(max(a.max(), b.max()))
    first, second = _quantised(a, low, high, levels), _quantised(b, low, high, levels)
    entropy = _entropy(second)
    conditional = _entropy(_pairs(first, second)) - _entropy(first)
    shuffled = np.random.default_rng(seed).permutation(second)
    chance = entropy - (_entropy(_pairs(first, shuffled)) - _entropy(first))
    return Information(entropy, conditional, entropy - conditional, chance)


def _quantised(values: Floats, low: float, high: float, levels: int) -> npt.NDArray[np.int64]:
    if high == low:
        return np.zeros(values.size, np.int64)
    place = (values.astype(np.float64) - low) * (levels / (high - low))
    return np.minimum(place.astype(np.int64), levels - 1)


def _pairs(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number each pair of values by their positions among the values that occur."""
    known, second = np.unique(b, return_inverse=True)
    _, first = np.unique(a, return_inverse=True)
    return np.asarray(first.astype(np.int64) * known.size + second)


def _entropy(values: npt.NDArray[np.int64]) -> float:
    _, counts = np.unique(values, return_counts=True)
    shares = counts / values.size
    return float(-(shares * np.log2(shares)).sum())
