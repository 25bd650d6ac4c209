"""Iteration time and scaling of training strategies, from a machine's parameters: `softnic model predict`.

| strategy | exchange | from |
|---|---|---|
| wa | all gradients to an aggregator, weights back, when the backward pass is through | costs.worker_aggregator |
| wa+c | the same, gradients compressed | |
| ring | one ring all-reduce of all gradients when the backward pass is through | costs.ring |
| ring+c | the same, compressed | |
| host | an all-reduce a layer by a share of the host's cores, behind the backward pass of the next | costs.ring |
| nic | an all-reduce a layer by the NICs, behind the backward pass of the next | smartnic.T_total |
| nic+c | the same, compressed | |

Codecs and frames are the NICs' affair in all of them, so a byte costs the slowest of link, codec and NIC. In the last
two the NIC adds, in the others the host. `host` is the baseline of Ma et al. (section III): its backward pass has only
the cores that are left. All of them are without jitter, and ranks are equally fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from softnic.model import costs, smartnic
from softnic.model.costs import Costs, ExchangeTime, FanOut
from softnic.model.frames import ring_ratio
from softnic.model.layers import BYTES, Layer, Network, parameters_of
from softnic.model.parameters import Machine
from softnic.model.smartnic import IterationTime, LayerTimes, System

STRATEGIES = ("wa", "wa+c", "ring", "ring+c", "host", "nic", "nic+c")
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """What is to be predicted."""

    network: Network
    batch: int
    """Examples of a worker's mini-batch."""
    rate_bps: float
    delay_s: float = 0.0
    """Of a link, one way."""
    codec: str = "bfp:7"
    """Of the strategies that compress."""
    nodes: tuple[int, ...] = NODES
    strategies: tuple[str, ...] = STRATEGIES
    host_share: float = 2 / 28
    """Of a host's cores, those that `host` exchanges with: the paper found 2 of 28 best."""
    fan_out: FanOut = "tree"
    """How an aggregator hands out weights; INCEPTIONN's formula has a tree."""
    nic_limit: bool = True
    """Whether a stream is as slow as the machine's NICs (Machine.stream_bytes_s) where the link is faster."""

    def __post_init__(self) -> None:
        if not self.network or not self.nodes or min(self.nodes) < 1 or self.batch < 1 or self.rate_bps <= 0:
            raise ValueError("a plan has a layer, a node, an example and a rate, at least")
        for strategy in self.strategies:
            if strategy not in STRATEGIES:
                raise ValueError(f"{strategy!r} is no strategy: {', '.join(STRATEGIES)} are")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one strategy on so many nodes."""

    strategy: str
    nodes: int
    iteration: IterationTime
    exchange_s: float
    """Of all layers, hidden or not."""
    scaling: float
    """Throughput, as a multiple of one node's: `nodes` were ideal (Ma et al., Fig. 4b)."""


def predict(plan: TrainingSetup, machine: Machine) -> list[Prediction]:
    """By strategy, then by nodes. Raises ValueError for a codec that the machine has no figures of."""
    alone = _iteration(plan, machine, "ring", 1)[0].total_s
    rows = []
    for strategy in plan.strategies:
        for nodes in plan.nodes:
            iteration, exchange_s = _iteration(plan, machine, strategy, nodes)
            rows.append(Prediction(strategy, nodes, iteration, exchange_s, nodes * alone / iteration.total_s))
    return rows


def _iteration(plan: TrainingSetup, machine: Machine, strategy: str, nodes: int) -> tuple[IterationTime, float]:
    """With the seconds of its exchange."""
    name, _, compressed = strategy.partition("+")
    codec = plan.codec if compressed else ""
    system = system_of(plan, machine, nodes, codec)
    layers = smartnic.layer_times(plan.network, plan.batch, system)
    if name == "nic":
        return smartnic.overlapped(layers), sum(work.exchange_s for work in layers)
    if name == "host":
        layers = [_by_host(work, layer, plan, machine, nodes) for work, layer in zip(layers, plan.network, strict=True)]
        return smartnic.overlapped(layers), sum(work.exchange_s for work in layers)
    exchange = _exchange(plan, machine, name, nodes, codec) if nodes > 1 else ExchangeTime()
    return smartnic.sequential(_whole(layers, exchange.total_s)), exchange.total_s


def _exchange(plan: TrainingSetup, machine: Machine, name: str, nodes: int, codec: str) -> ExchangeTime:
    """Of all layers at once, driven by the hosts."""
    n = BYTES * parameters_of(plan.network)
    ratio_of = machine.codec(codec).beta if codec else _one
    if name == "ring":
        return costs.ring(nodes, n, costs_of(plan, machine, codec, ring_ratio(nodes, ratio_of)))
    return costs.worker_aggregator(
        nodes, n, costs_of(plan, machine, codec, ratio_of(1)), costs_of(plan, machine), fan_out=plan.fan_out
    )


def _by_host(work: LayerTimes, layer: Layer, plan: TrainingSetup, machine: Machine, nodes: int) -> LayerTimes:
    """A layer whose exchange takes cores from the backward pass. One node needs none of them."""
    if nodes == 1:
        return work
    exchange_s = costs.ring(nodes, BYTES * layer.parameters, costs_of(plan, machine)).total_s
    return replace(work, backward_s=work.backward_s / (1 - plan.host_share), exchange_s=exchange_s)


def _one(summed: int) -> float:  # noqa: ARG001
    """The ratio of no codec."""
    return 1.0


def _whole(layers: Sequence[LayerTimes], exchange_s: float) -> list[LayerTimes]:
    """The layers with one exchange for all."""
    return [
        LayerTimes(work.forward_s, work.backward_s, exchange_s if index == 0 else 0.0, work.update_s)
        for index, work in enumerate(layers)
    ]


def system_of(plan: TrainingSetup, machine: Machine, nodes: int, codec: str = "") -> System:
    """The smart NIC's symbols for a machine: its NIC is a process on the worker's own memory."""
    figures = machine.codec(codec) if codec else None
    alpha = figures.alpha if figures else machine.alpha
    return System(
        N=nodes,
        P_Worker=machine.P_Worker,
        BW_eth=_bandwidth(plan, machine, alpha),
        alpha=alpha,
        beta=ring_ratio(nodes, figures.beta) if figures else 1.0,
        P_FPGA=(machine.nic_add_bytes_s or machine.add_bytes_s) / BYTES,
        P_codec=min(figures.encode_bytes_s, figures.decode_bytes_s) / BYTES if figures else math.inf,
        BW_pcie=8 * machine.memory_bytes_s,
        update_s=machine.update_s,
        latency_s=machine.latency_s + plan.delay_s,
    )


def costs_of(plan: TrainingSetup, machine: Machine, codec: str = "", beta: float = 1.0) -> Costs:
    """INCEPTIONN's symbols for a machine; with a codec, that makes its gradients `beta` times smaller."""
    bandwidth = machine.alpha * _bandwidth(plan, machine, machine.alpha)
    exact = Costs(machine.latency_s + plan.delay_s, 8 / bandwidth, 1 / machine.add_bytes_s)
    if not codec:
        return exact
    figures = machine.codec(codec)
    codec_s = 1 / min(figures.encode_bytes_s, figures.decode_bytes_s)
    return exact.compressed(beta * figures.alpha / machine.alpha, codec_s)


def _bandwidth(plan: TrainingSetup, machine: Machine, alpha: float) -> float:
    """Of the link, or of what NICs can fill of it."""
    if not plan.nic_limit or machine.stream_bytes_s is None:
        return plan.rate_bps
    return min(plan.rate_bps, 8 * machine.stream_bytes_s / alpha)
