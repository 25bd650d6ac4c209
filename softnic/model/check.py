"""The formulas against the virtual-time cluster: every byte through the whole stack, computing as a time.

The cluster's links have a rate, a delay and batches; the formulas are given what follows from these, and nothing that
was fitted to the result but MODERATED. What they leave out: queues, the ramp of TCP's slow start (excluded by warm-up
iterations), and in which phase the batches of neighbouring links are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from softnic.model import costs, frames, programs, smartnic
from softnic.model.costs import Costs, ExchangeTime
from softnic.model.layers import BYTES, Layer, Network, mlp, network
from softnic.model.smartnic import LayerTimes, System
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Floats, Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec

MODERATED = 0.5
"""Of the interval between a link's batches, what a message of several frames waits for the one that its last frame
leaves with: it ends anywhere in it. A first frame after a pause goes at once, so a message of one waits for none."""

STRATEGIES = ("wa", "wa+c", "ring", "ring+c", "nic", "nic+c")
"""As in predict.py. The cluster's aggregator answers each worker directly."""

SIGMA = 0.01
MOST_NODES = 16
"""Of the cases that take long to simulate."""
_SAMPLE = 1 << 17
"""Floats whose frames are counted."""
WARM_UP = 1
"""Iterations before the one that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCase:
    """An iteration, or with `compute` 0 an exchange."""

    strategy: str
    nodes: int
    """Workers."""
    network: Network
    name: str
    """The network's."""
    rate_bps: float = 1e9
    delay_s: float = 50e-6
    coalesce_s: float = 100e-6
    codec: str = "bfp:7"
    """Of strategies that compress."""
    compute: float = 0.0
    """Forward and backward pass of all layers, as a multiple of the time that their gradients take on a link."""
    gamma: float = 0.0
    """Seconds a byte of a host's sums."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"{self.strategy!r} is no strategy: {', '.join(STRATEGIES)} are")

    @property
    def used_codec(self) -> str:
        return self.codec if self.strategy.endswith("+c") else ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Seconds of a case, by the formulas and in the virtual-time cluster."""

    case: CheckCase
    predicted_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was simulated."""
        return self.predicted_s / self.simulated_s - 1


def check(case: CheckCase) -> CheckResult:
    """Predicts and simulates."""
    return CheckResult(case, predict(case), simulate(case))


# The formulas


def predict(case: CheckCase) -> float:
    """Seconds of the case by the formulas of costs.py and smartnic.py."""
    layer_times = layer_times_of(case)
    if case.strategy.startswith("nic"):
        return smartnic.overlapped(layer_times).total_s
    return smartnic.sequential(layer_times).total_s


def layer_times_of(case: CheckCase) -> list[LayerTimes]:
    """Times of the case's layers: computing as the case says, exchange as the formulas do."""
    system = _system(case)
    layers = smartnic.layer_times(case.network, 1, system)
    if case.strategy.startswith("nic"):
        return layers
    exchange_s = exchange_of(case).total_s
    return [replace(work, exchange_s=exchange_s if index == 0 else 0.0) for index, work in enumerate(layers)]


def exchange_of(case: CheckCase) -> ExchangeTime:
    """What costs.py says of a host-driven exchange."""
    n = BYTES * sum(layer.parameters for layer in case.network)
    exact, coded = _costs(case, ""), _costs(case, case.used_codec)
    if case.strategy.startswith("wa"):
        return costs.worker_aggregator(case.nodes, n, coded, exact, fan_out="direct")
    return costs.ring(case.nodes, n, coded)


def _usable(case: CheckCase, codec: str) -> tuple[float, float]:
    """alpha and beta: what is left of a link by headers and by acknowledgements of what comes the other way, and the
    ratio of all that is sent in the case's exchange."""
    sample = _gradients(_SAMPLE, 0)
    share = frames.acknowledgements(case.rate_bps, case.coalesce_s)
    alpha = frames.framed(sample, codec).alpha / (1 + share)

    def ratio_of(summed: int) -> float:
        return frames.framed(sample * np.float32(math.sqrt(summed)), codec).beta

    if not codec:
        return alpha, 1.0
    return alpha, ratio_of(1) if case.strategy.startswith("wa") else frames.ring_ratio(case.nodes, ratio_of)


def _costs(case: CheckCase, codec: str) -> Costs:
    alpha, beta = _usable(case, codec)
    return Costs(case.delay_s + MODERATED * case.coalesce_s, 8 / (alpha * beta * case.rate_bps), case.gamma)


def _system(case: CheckCase) -> System:
    """P_Worker so that `compute` comes out, and an update at a tenth of the backward pass of a square layer."""
    alpha, beta = _usable(case, case.used_codec)
    bits = 8 * BYTES * sum(layer.parameters for layer in case.network)
    flop = sum(layer.forward_flop + layer.backward_flop for layer in case.network)
    compute_s = case.compute * bits / case.rate_bps
    return System(
        N=case.nodes,
        P_Worker=flop / compute_s if compute_s else float("inf"),
        BW_eth=case.rate_bps,
        alpha=alpha,
        beta=beta,
        update_s=0.1 * compute_s * 8 * BYTES / bits,
        latency_s=case.delay_s,
        batch_s=MODERATED * case.coalesce_s,
    )


# The cluster


def simulate(case: CheckCase) -> float:
    """Seconds of the case in virtual time. Raises ArithmeticError if a rank ends with a wrong sum."""
    aggregator = case.strategy.startswith("wa")
    cluster = SimCluster(
        ClusterSpec(
            nodes=case.nodes + aggregator, rate_bps=case.rate_bps, delay_s=case.delay_s, coalesce_s=case.coalesce_s
        )
    )
    layer_times = layer_times_of(case)
    sizes = [_whole(layer) for layer in case.network]
    taken = 0.0
    for _ in range(WARM_UP + 1):
        gradients = [_gradients(sum(sizes), rank.index + 1) for rank in cluster.ranks]
        expected = np.sum(gradients[: case.nodes], axis=0)
        taken = cluster.run(_program(case, layer_times, sizes, gradients))
        if not all(_agree(each, expected, bool(case.used_codec), case.nodes) for each in gradients):
            raise ArithmeticError(f"{case.strategy} on {case.nodes} nodes has summed wrong")
    return taken


def _agree(found: Floats, expected: Floats, lossy: bool, nodes: int) -> bool:
    """Exact to rounding; of lossy codecs, errors well below what is summed, whose mean square is nodes SIGMA^2."""
    wrong = found - expected
    if not lossy:
        return bool(np.abs(wrong).max() < 1e-3 * SIGMA * nodes)
    return float(np.sqrt(np.mean(wrong**2))) < 0.5 * SIGMA * math.sqrt(nodes)


def _program(
    case: CheckCase, layer_times: Sequence[LayerTimes], sizes: Sequence[int], gradients: Sequence[Floats]
) -> Callable[[SimRank], Program]:
    def program(rank: SimRank) -> Program:
        vector = gradients[rank.index]
        if case.strategy.startswith("nic"):
            ends = np.cumsum(sizes)
            parts = [vector[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            return programs.overlapped(rank, layer_times, parts, case.used_codec)
        exchange = programs.ring if case.strategy.startswith("ring") else programs.worker_aggregator
        return programs.sequential(rank, layer_times, exchange(rank, vector, case.gamma, case.used_codec))

    return program


def _whole(layer: Layer) -> int:
    """Its parameters, in whole stretches of 64 bytes."""
    return -(-layer.parameters // programs.LANES) * programs.LANES


def _gradients(count: int, seed: int) -> Floats:
    """Normal, as gradients are."""
    return np.random.default_rng(seed).standard_normal(count, np.float32) * np.float32(SIGMA)


# What is checked


def scaled(name: str, factor: int) -> Network:
    """A network of that name whose layers have `factor` times fewer parameters, and as much less to compute."""
    return tuple(
        Layer(each.name, -(-each.parameters // factor), each.forward_flop / factor, each.backward_flop / factor)
        for each in network(name)
    )


def cases(nodes: Sequence[int] = (2, 4, 8, 16, 32), strategies: Sequence[str] = STRATEGIES) -> list[CheckCase]:
    """Iterations of several networks at several rates, from much computing beside the exchange to little."""
    made = []
    for strategy, count in product(strategies, nodes):
        case = CheckCase(
            strategy=strategy,
            nodes=count,
            network=mlp(3, 512),
            name="mlp 3 x 512",
            compute=3.0,
            gamma=0.0 if strategy.startswith("nic") else 2e-10,
        )
        made.append(case)
        if count <= MOST_NODES:
            fast = replace(case, rate_bps=10e9, coalesce_s=10e-6)
            made += [
                replace(fast, network=network("hdc"), name="hdc", compute=1.0),
                replace(fast, network=scaled("alexnet", 32), name="alexnet / 32", compute=0.5, codec="bounded:8"),
            ]
    return made


def exchanges(nodes: Sequence[int] = (4, 8, 16, 32), parameters: int = 1 << 19) -> list[CheckCase]:
    """INCEPTIONN's Fig. 15 and one more: the exchange alone, of one vector, without compression."""
    layer = (Layer("all", parameters, 0.0, 0.0),)
    return [
        CheckCase(strategy=strategy, nodes=count, network=layer, name=f"{BYTES * parameters / 1e6:.1f} MB", gamma=2e-10)
        for strategy in ("wa", "ring", "nic")
        for count in nodes
    ]
