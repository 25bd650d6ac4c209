"""The formulas compared with the virtual-time cluster, in which every byte passes through the whole stack.

The cluster's links have a rate, a delay and batches (interrupt moderation); the formulas get what follows from these,
and nothing fitted to the result but MODERATED. They leave out queues, TCP's slow start (excluded by warm-up iterations)
and the phase of neighbouring links' batches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from softnic.model import frames, programs
from softnic.model.layers import BYTES, Layer, Network, mlp, network, parameters_of
from softnic.model.parameters import CodecFigures, Machine
from softnic.model.predict import TrainingSetup, check_strategy, iteration_of, layer_times_of
from softnic.model.smartnic import LayerTimes
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Floats, Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec

MODERATED = 0.5
"""Mean wait of a message's last frame for its batch, as a fraction of the interval between batches. The first frame
after a pause leaves at once, so a message of one frame does not wait."""
STRATEGIES = ("wa", "wa+c", "ring", "ring+c", "nic", "nic+c")
"""As in predict.py. The cluster's aggregator answers each worker directly."""
SIGMA = 0.01
"""Standard deviation of gradients."""
MOST_NODES = 16
"""Of the cases that are slow to simulate."""
WARM_UP = 1
"""Iterations before the measured one."""
_SAMPLE = 1 << 17
"""Floats whose frames are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCase:
    """An iteration, or with `compute` 0 an exchange. Raises ValueError for an unknown strategy."""

    strategy: str
    nodes: int
    """Workers."""
    network: Network
    name: str
    """Of the network."""
    rate_bps: float = 1e9
    delay_s: float = 50e-6
    coalesce_s: float = 100e-6
    codec: str = "bfp:7"
    """Of strategies that compress."""
    compute: float = 0.0
    """Forward and backward pass of all layers, as a multiple of their gradients' time on a link."""
    gamma: float = 0.0
    """Seconds a byte of a host's sums."""

    def __post_init__(self) -> None:
        check_strategy(self.strategy, STRATEGIES)

    @property
    def used_codec(self) -> str:
        """The codec; empty if the strategy does not compress."""
        return self.codec if self.strategy.endswith("+c") else ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Seconds of a case, by the formulas and in the virtual-time cluster."""

    case: CheckCase
    predicted_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Of the prediction, as a fraction of the simulated time."""
        return self.predicted_s / self.simulated_s - 1


def check(case: CheckCase) -> CheckResult:
    """Predict and simulate a case."""
    return CheckResult(case, predict(case), simulate(case))


# The formulas


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledCodec(CodecFigures):
    """A codec on the cluster's gradients: it takes no time, and its ratios are exact for any number of ranks."""

    name: str

    def beta(self, summed: int = 1) -> float:
        return _framed_sums(self.name, summed).beta


def predict(case: CheckCase) -> float:
    """Return the seconds of a case by the formulas of costs.py and smartnic.py."""
    return iteration_of(_layer_times(case), case.strategy).total_s


def _layer_times(case: CheckCase) -> list[LayerTimes]:
    return layer_times_of(_setup(case), machine_of(case), case.strategy, case.nodes)


def _setup(case: CheckCase) -> TrainingSetup:
    return TrainingSetup(
        network=case.network,
        batch=1,
        rate_bps=case.rate_bps,
        delay_s=case.delay_s,
        batch_s=MODERATED * case.coalesce_s,
        codec=case.codec,
        fan_out="direct",
    )


def machine_of(case: CheckCase) -> Machine:
    """Return the figures of the cluster's hosts. An update takes a tenth of the backward pass of a square layer."""
    bits = 8 * BYTES * parameters_of(case.network)
    flop = sum(layer.forward_flop + layer.backward_flop for layer in case.network)
    compute_s = case.compute * bits / case.rate_bps
    codec = case.used_codec
    return Machine(
        description="a host of the virtual-time cluster",
        P_Worker=flop / compute_s if compute_s else math.inf,
        add_bytes_s=1 / case.gamma if case.gamma else math.inf,
        nic_add_bytes_s=math.inf,
        memory_bytes_s=math.inf,
        update_bytes_s=bits / (0.8 * compute_s) if compute_s else math.inf,
        alpha=_alpha(case, ""),
        latency_s=0.0,
        codecs={codec: _codec_figures(case, codec)} if codec else {},
    )


def _codec_figures(case: CheckCase, codec: str) -> SampledCodec:
    alpha = _alpha(case, codec)
    return SampledCodec(name=codec, betas=(1.0,), alpha=alpha, encode_bytes_s=math.inf, decode_bytes_s=math.inf)


def _alpha(case: CheckCase, codec: str) -> float:
    """The share of a link without headers and without acknowledgements of what is received."""
    share = frames.acknowledgements(case.rate_bps, case.coalesce_s)
    return _framed_sums(codec, 1).alpha / (1 + share)


@functools.cache
def _framed_sums(codec: str, summed: int) -> frames.Framed:
    """The frames of a sample of sums of this number of ranks' gradients."""
    return frames.framed(_gradients(_SAMPLE, 0) * np.float32(math.sqrt(summed)), codec)


# The cluster


def simulate(case: CheckCase) -> float:
    """Return the seconds of a case in virtual time. Raises ArithmeticError if a rank ends with a wrong sum."""
    nodes = case.nodes + case.strategy.startswith("wa")  # the aggregator is one more
    spec = ClusterSpec(
        nodes=nodes, rate_bps=case.rate_bps, delay_s=case.delay_s, coalesce_s=case.coalesce_s, connect="all"
    )
    cluster = SimCluster(spec)
    times = _layer_times(case)
    sizes = [_padded(layer) for layer in case.network]
    drawn = [_gradients(sum(sizes), rank.index + 1) for rank in cluster.ranks]
    expected = np.sum(drawn[: case.nodes], axis=0)
    taken = 0.0
    for _ in range(WARM_UP + 1):
        gradients = [each.copy() for each in drawn]
        taken = cluster.run(_program(case, times, sizes, gradients))
        if not all(_agree(each, expected, bool(case.used_codec), case.nodes) for each in gradients):
            raise ArithmeticError(f"{case.strategy} on {case.nodes} nodes ended with wrong sums")
    return taken


def _agree(found: Floats, expected: Floats, lossy: bool, nodes: int) -> bool:
    """Exact up to rounding; with a lossy codec, the error is well below the sums, whose variance is nodes SIGMA^2."""
    wrong = found - expected
    if not lossy:
        return bool(np.abs(wrong).max() < 1e-3 * SIGMA * nodes)
    return float(np.sqrt(np.mean(wrong**2))) < 0.5 * SIGMA * math.sqrt(nodes)


def _program(
    case: CheckCase, times: Sequence[LayerTimes], sizes: Sequence[int], gradients: Sequence[Floats]
) -> Callable[[SimRank], Program]:
    def program(rank: SimRank) -> Program:
        vector = gradients[rank.index]
        if case.strategy.startswith("nic"):
            parts = np.split(vector, np.cumsum(sizes)[:-1])
            return programs.overlapped(rank, times, parts, case.used_codec)
        exchange = programs.ring if case.strategy.startswith("ring") else programs.worker_aggregator
        return programs.sequential(rank, times, exchange(rank, vector, case.gamma, case.used_codec))

    return program


def _padded(layer: Layer) -> int:
    """The parameters of a layer, padded to whole coding blocks."""
    return -(-layer.parameters // programs.BLOCK_FLOATS) * programs.BLOCK_FLOATS


def _gradients(count: int, seed: int) -> Floats:
    """Normally distributed values, as gradients are."""
    return np.random.default_rng(seed).standard_normal(count, np.float32) * np.float32(SIGMA)


# What is checked


def scaled(name: str, factor: int) -> Network:
    """Return a network with `factor` times fewer parameters and FLOP in each layer."""
    return tuple(
        Layer(each.name, -(-each.parameters // factor), each.forward_flop / factor, each.backward_flop / factor)
        for each in network(name)
    )


def cases(nodes: Sequence[int] = (2, 4, 8, 16, 32), strategies: Sequence[str] = STRATEGIES) -> list[CheckCase]:
    """Return iterations of several networks at several rates, from much computation beside the exchange to little."""
    made = []
    for strategy, count in product(strategies, nodes):
        gamma = 0.0 if strategy.startswith("nic") else 2e-10
        perceptron = mlp(3, 512)
        case = CheckCase(
            strategy=strategy, nodes=count, network=perceptron, name="mlp 3 x 512", compute=3.0, gamma=gamma
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
    """Return the exchanges of INCEPTIONN's Fig. 15, and those of the NICs: one vector, without compression."""
    layer = (Layer("all", parameters, 0.0, 0.0),)
    name = f"{BYTES * parameters / 1e6:.1f} MB"
    return [
        CheckCase(strategy=strategy, nodes=count, network=layer, name=name, gamma=2e-10)
        for strategy in ("wa", "ring", "nic")
        for count in nodes
    ]
