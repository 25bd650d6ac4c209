"""The alpha-beta-gamma costs of gradient exchange: INCEPTIONN (Li et al., MICRO 2018), section VIII-D, and the same for
softnic's other algorithms.

Symbols are the paper's: `p` workers, `n` bytes of gradients, `alpha` seconds of a message's latency, `beta` seconds a
byte on a link, `gamma` seconds a byte summed. Logarithms are to base 2, as in the paper's source (its [24]: Thakur,
Rabenseifner and Gropp, 2005): the rounds of a binomial tree. As in Thakur et al., links are full duplex, a node sends
to one and receives from one at a time at full rate, and a message of n bytes takes alpha + n beta.

    worker-aggregator   (1 + log p) alpha + (p + log p) n beta + (p - 1) n gamma
    ring                2 (p - 1) alpha + 2 (p - 1)/p n beta + (p - 1)/p n gamma

Notes on the paper's formulas:

- In the first, the aggregator receives p gradients of n bytes, so it is a node beside the p workers, yet its broadcast
  takes the rounds of p nodes, not of p + 1. `worker_aggregator` follows the paper.
- Many implementations, softnic's included, send weights to the p workers one after the other: then log p becomes p
  (`fan_out="direct"`), and an exchange takes 2 p n beta.
- log p is not an integer for most p. A tree takes whole rounds, so `rounds=True` rounds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

FanOut = Literal["tree", "direct"]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one link and one node."""

    alpha: float
    """Latency of a message in seconds."""
    beta: float
    """Seconds a byte on a link."""
    gamma: float
    """Seconds a byte summed."""

    def compressed(self, ratio: float, codec: float = 0.0) -> Costs:
        """Return the costs of compressed gradients.

        Parameters
        ----------
        ratio : float
            Compression ratio.
        codec : float
            Seconds a byte of gradients, for the slower of encoding and decoding. NICs encode while they send, so the
            slower of codec and link determines `beta`.
        """
        if ratio <= 0:
            raise ValueError(f"a compression ratio is more than 0, not {ratio!r}")
        return replace(self, beta=max(self.beta / ratio, codec))


@dataclass(frozen=True, slots=True)
class ExchangeTime:
    """Seconds of an exchange, by the formula's three terms. Successive exchanges add up."""

    latency_s: float = 0.0
    transfer_s: float = 0.0
    sum_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.latency_s + self.transfer_s + self.sum_s

    def __add__(self, other: ExchangeTime) -> ExchangeTime:
        return ExchangeTime(
            self.latency_s + other.latency_s, self.transfer_s + other.transfer_s, self.sum_s + other.sum_s
        )


def _check(p: int) -> None:
    if p < 1:
        raise ValueError(f"an exchange has 1 node or more, not {p}")


def _log(p: float, rounds: bool) -> float:
    """The logarithm to base 2: 0 for one node."""
    return math.ceil(math.log2(p)) if rounds else math.log2(p)


def worker_aggregator(
    p: int, n: float, costs: Costs, back: Costs | None = None, *, fan_out: FanOut = "tree", rounds: bool = False
) -> ExchangeTime:
    """Return the time in which p workers send gradients to an aggregator and receive weights.

    INCEPTIONN, section VIII-D; with `fan_out="direct"` the aggregator sends to one worker after the other. `back` are
    the costs of the weights, which are not compressed (None: those of the gradients).
    """
    _check(p)
    back = back or costs
    hops = _log(p, rounds) if fan_out == "tree" else 1.0
    copies = _log(p, rounds) if fan_out == "tree" else float(p)
    return ExchangeTime(
        costs.alpha + hops * back.alpha, p * n * costs.beta + copies * n * back.beta, (p - 1) * n * costs.gamma
    )


def ring(p: int, n: float, costs: Costs) -> ExchangeTime:
    """Return the time of a ring: 2(p-1) steps of n/p bytes, the first half with sums. INCEPTIONN, section VIII-D."""
    _check(p)
    part = (p - 1) / p * n
    return ExchangeTime(2 * (p - 1) * costs.alpha, 2 * part * costs.beta, part * costs.gamma)


def direct(p: int, n: float, costs: Costs) -> ExchangeTime:
    """Return the time of sending each block to its owner, and its sum to all others.

    The p - 1 messages of a half follow one another on the link without waiting for answers: one latency each half.
    """
    _check(p)
    part = (p - 1) / p * n
    return ExchangeTime(2 * costs.alpha if p > 1 else 0.0, 2 * part * costs.beta, part * costs.gamma)


def tree(p: int, n: float, costs: Costs) -> ExchangeTime:
    """Return the time of a binomial tree to rank 0 and another one back, with whole vectors: for small messages.
    Thakur et al., sections 4.1 and 4.4."""
    _check(p)
    rounds = _log(p, rounds=True)
    return ExchangeTime(2 * rounds * costs.alpha, 2 * rounds * n * costs.beta, rounds * n * costs.gamma)


def rabenseifner(p: int, n: float, costs: Costs) -> ExchangeTime:
    """Return the time of a reduce-scatter by recursive halving and an allgather by recursive doubling (Thakur et al.,
    section 4.5), for powers of two. One of the schemes of Ma et al., Fig. 2b, which softnic does not have."""
    _check(p)
    return replace(ring(p, n, costs), latency_s=2 * _log(p, rounds=False) * costs.alpha)


def binomial_gather_scatter(p: int, n: float, costs: Costs) -> ExchangeTime:
    """Return the time of gathering all vectors at rank 0 by a binomial tree, summing them there, and sending the sum
    back by another tree: rank 0 receives p - 1 vectors. An interpretation of "binomial gather/scatter" in Ma et al.,
    Fig. 2b, which softnic does not have."""
    _check(p)
    rounds = _log(p, rounds=True)
    return ExchangeTime(2 * rounds * costs.alpha, (p - 1 + rounds) * n * costs.beta, (p - 1) * n * costs.gamma)


def hierarchical(p: int, n: float, costs: Costs, group: int) -> ExchangeTime:
    """Return the time of rings of `group` neighbours, and rings of the owners of the same block in each group
    (INCEPTIONN, Fig. 1c): reduce-scatter within the group, all-reduce of the block among the p/group owners, allgather
    within the group.

    It moves the bytes of one ring in 2(group - 1) + 2(p/group - 1) steps. Raises ValueError if p is not a multiple of
    `group`.
    """
    _check(p)
    if group < 1 or p % group:
        raise ValueError(f"{p} workers do not make groups of {group}")
    return ring(group, n, costs) + ring(p // group, n / group, costs)


ALGORITHMS: dict[str, Callable[[int, float, Costs], ExchangeTime]] = {
    "ring": ring,
    "direct": direct,
    "tree": tree,
    "rabenseifner": rabenseifner,
    "binomial": binomial_gather_scatter,
}
"""Formulas of all-reduces without further arguments, by name."""
