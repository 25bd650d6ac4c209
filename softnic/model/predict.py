"""Iteration time and scaling of training strategies, from a machine's parameters: `softnic model predict`.

| strategy | exchange | from |
|---|---|---|
| wa | all gradients to an aggregator and weights back, after the backward pass | costs.worker_aggregator |
| wa+c | the same, gradients compressed | |
| ring | one ring all-reduce of all gradients after the backward pass | costs.ring |
| ring+c | the same, compressed | |
| host | an all-reduce a layer by some of the host's cores, during the backward pass of the next layer | costs.ring |
| nic | an all-reduce a layer by the NICs, during the backward pass of the next layer | smartnic.T_total |
| nic+c | the same, compressed | |

The NICs encode and cut frames in all strategies, so the time of a byte is that of the slowest of link, codec and NIC.
In `nic` and `nic+c` the NIC adds, in the others the host. `host` is the baseline of Ma et al. (section III): its
backward pass has only the remaining cores. Jitter and stragglers are not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from softnic.model import costs, smartnic
from softnic.model.costs import Costs, ExchangeTime, FanOut
from softnic.model.frames import ring_ratio
from softnic.model.layers import BYTES, Layer, Network, parameters_of
from softnic.model.parameters import Machine
from softnic.model.smartnic import IterationTime, LayerTimes, System

STRATEGIES = ("wa", "wa+c", "ring", "ring+c", "host", "nic", "nic+c")
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
RECOMMENDED = "rht:4"
"""The codec for gradients of any model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """The training to be predicted. Raises ValueError for impossible ones."""

    network: Network
    batch: int
    """Examples in a worker's mini-batch."""
    rate_bps: float
    delay_s: float = 0.0
    """Of a link, one way."""
    batch_s: float = 0.0
    """Mean time that the last frame of a message waits for its batch to leave (interrupt moderation)."""
    codec: str = "bfp:7"
    """Of the strategies that compress."""
    nodes: tuple[int, ...] = NODES
    strategies: tuple[str, ...] = STRATEGIES
    host_share: float = 2 / 28
    """Fraction of a host's cores with which `host` exchanges: the paper found 2 of 28 best."""
    fan_out: FanOut = "tree"
    """How an aggregator distributes weights; INCEPTIONN's formula has a tree."""
    compute_s: float | None = None
    """A step's time on one worker without exchange: forward and backward pass and update, as measured on a GPU, say.
    None: as the machine's parameters say."""
    nic_limit: bool = True
    """Whether streams are limited by the machine's NICs (Machine.stream_bytes_s) where the link is faster."""

    def __post_init__(self) -> None:
        if not self.network or not self.nodes or min(self.nodes) < 1 or self.batch < 1 or self.rate_bps <= 0:
            raise ValueError("a prediction needs a layer, a node, an example and a rate above 0, at least")
        if self.compute_s is not None and self.compute_s <= 0:
            raise ValueError("a step's computation takes more than 0 s")
        for strategy in self.strategies:
            check_strategy(strategy, STRATEGIES)


def default_codec(machine: Machine) -> str:
    """Return the recommended codec, or the first that was measured on a machine without its figures."""
    return RECOMMENDED if RECOMMENDED in machine.codecs else next(iter(machine.codecs), RECOMMENDED)


def computing(setup: TrainingSetup, machine: Machine) -> Machine:
    """Return the machine that computes a step of the setup in `compute_s`, divided over the layers by their FLOP."""
    if setup.compute_s is None:
        return machine
    flop = setup.batch * sum(layer.forward_flop + layer.backward_flop for layer in setup.network)
    return replace(machine, P_Worker=flop / setup.compute_s, update_bytes_s=math.inf)


def check_strategy(name: str, known: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown strategy."""
    if name not in known:
        raise ValueError(f"{name!r} is no strategy: {', '.join(known)} are")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted iteration of one strategy on a number of nodes."""

    strategy: str
    nodes: int
    iteration: IterationTime
    exchange_s: float
    """Of all layers, hidden or not."""
    scaling: float
    """Throughput as a multiple of one node's; `nodes` is ideal (Ma et al., Fig. 4b)."""


def predict(setup: TrainingSetup, machine: Machine) -> list[Prediction]:
    """Predict all strategies on all numbers of nodes.

    Returns
    -------
    list of Prediction
        By strategy, then by nodes.

    Raises
    ------
    ValueError
        The machine has no figures of the codec.
    """
    machine = computing(setup, machine)
    alone = iteration_of(layer_times_of(setup, machine, "ring", 1), "ring").total_s
    rows = []
    for strategy in setup.strategies:
        for nodes in setup.nodes:
            times = layer_times_of(setup, machine, strategy, nodes)
            iteration = iteration_of(times, strategy)
            exchange_s = sum(layer.exchange_s for layer in times)
            rows.append(Prediction(strategy, nodes, iteration, exchange_s, nodes * alone / iteration.total_s))
    return rows


def iteration_of(times: list[LayerTimes], strategy: str) -> IterationTime:
    """Return the time of an iteration whose layers take these times."""
    overlaps = strategy.partition("+")[0] in ("nic", "host")
    return smartnic.overlapped(times) if overlaps else smartnic.sequential(times)


def layer_times_of(setup: TrainingSetup, machine: Machine, strategy: str, nodes: int) -> list[LayerTimes]:
    """Return the times of each layer. Where one exchange serves all layers, the first has its time."""
    name, _, compressed = strategy.partition("+")
    codec = setup.codec if compressed else ""
    times = smartnic.layer_times(setup.network, setup.batch, system_of(setup, machine, nodes, codec))
    if name == "nic":
        return times
    if name == "host":
        return [_by_host(each, layer, setup, machine, nodes) for each, layer in zip(times, setup.network, strict=True)]
    exchange = _exchange(setup, machine, name, nodes, codec) if nodes > 1 else ExchangeTime()
    return [replace(each, exchange_s=0.0 if index else exchange.total_s) for index, each in enumerate(times)]


def _exchange(setup: TrainingSetup, machine: Machine, name: str, nodes: int, codec: str) -> ExchangeTime:
    """An exchange of all layers at once, driven by the hosts."""
    n = BYTES * parameters_of(setup.network)
    figures = machine.codec(codec) if codec else None
    if name == "ring":
        return costs.ring(nodes, n, costs_of(setup, machine, codec, ring_ratio(nodes, figures.beta) if figures else 1))
    gradients = costs_of(setup, machine, codec, figures.beta(1) if figures else 1)
    return costs.worker_aggregator(nodes, n, gradients, costs_of(setup, machine), fan_out=setup.fan_out)


def _by_host(times: LayerTimes, layer: Layer, setup: TrainingSetup, machine: Machine, nodes: int) -> LayerTimes:
    """A layer whose exchange takes cores from the backward pass. A single node needs none for it."""
    if nodes == 1:
        return times
    exchange_s = costs.ring(nodes, BYTES * layer.parameters, costs_of(setup, machine)).total_s
    return replace(times, backward_s=times.backward_s / (1 - setup.host_share), exchange_s=exchange_s)


def system_of(setup: TrainingSetup, machine: Machine, nodes: int, codec: str = "") -> System:
    """Return the smart NIC's symbols for a machine, whose NIC is a process on the worker's own memory."""
    figures = machine.codec(codec) if codec else None
    alpha = figures.alpha if figures else machine.alpha
    return System(
        N=nodes,
        P_Worker=machine.P_Worker,
        BW_eth=_bandwidth(setup, machine, alpha),
        alpha=alpha,
        beta=ring_ratio(nodes, figures.beta) if figures else 1.0,
        P_FPGA=(machine.nic_add_bytes_s or machine.add_bytes_s) / BYTES,
        P_codec=min(figures.encode_bytes_s, figures.decode_bytes_s) / BYTES if figures else math.inf,
        BW_pcie=8 * machine.memory_bytes_s,
        update_s=machine.update_s,
        latency_s=machine.latency_s + setup.delay_s,
        batch_s=setup.batch_s,
    )


def costs_of(setup: TrainingSetup, machine: Machine, codec: str = "", beta: float = 1.0) -> Costs:
    """Return INCEPTIONN's symbols for a machine. `beta` is the compression ratio of the codec."""
    bandwidth = machine.alpha * _bandwidth(setup, machine, machine.alpha)
    latency_s = machine.latency_s + setup.delay_s + setup.batch_s
    exact = Costs(latency_s, 8 / bandwidth, 1 / machine.add_bytes_s)
    if not codec:
        return exact
    figures = machine.codec(codec)
    codec_s = 1 / min(figures.encode_bytes_s, figures.decode_bytes_s)
    return exact.compressed(beta * figures.alpha / machine.alpha, codec_s)


def _bandwidth(setup: TrainingSetup, machine: Machine, alpha: float) -> float:
    """Of the link, or what NICs can fill of it."""
    if not setup.nic_limit or machine.stream_bytes_s is None:
        return setup.rate_bps
    return min(setup.rate_bps, 8 * machine.stream_bytes_s / alpha)
