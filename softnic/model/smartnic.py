"""The iteration time of training with smart NICs: Ma et al. (arXiv 2204.10943), section IV-C.

Symbols are the paper's. Layer l has M_l x M_l weights (`Layer.parameters`); B examples make a mini-batch, N nodes
train; b bits are added at a time, `alpha` is the share of the Ethernet's BW_eth that can be used, `beta` the
compression ratio. Times in seconds, bandwidths in bit/s, P_Worker in FLOP/s, P_FPGA in additions a second.

    T_F_l = 2 M_l^2 B / P_Worker            T_B_l = 4 M_l^2 B / P_Worker         R_l = b N ceil(M_l^2 / N)
    T_ring_l = R_l 2(N-1) / (N alpha BW_eth beta)      T_add_l = R_l 2(N-1) / (N P_FPGA b)
    T_mem_l = 2 R_l / BW_pcie               T_AR_l = max(T_ring_l, T_add_l, T_mem_l)
    T_total = sum of T_F + T_B_L + max(T_B_(L-1), T_AR_L) + sum over l = 2..L-1 of max(T_U_(l+1) + T_B_(l-1), T_AR_l)
              + max(T_U_2, T_AR_1) + T_U_1

Layers are generalised from square ones to any number of parameters and FLOP (layers.py).

What we found in the paper's formulas:

- T_add counts an addition in each of the 2(N-1) steps. Only the first N-1 of them add (section II-B says so too); the
  others move sums. Its adders have twice the time that the formula gives them. `T_add` counts N-1.
- T_ring has no latency. A node cannot pass on what has not come, and `grain` bytes at least are passed on at a time, so
  a step takes no less than these and their way to the next node, `latency_s`: 0 in the paper, whose layers are large
  and nodes few (`T_step`).
- T_total is of two layers or more. With one it would count T_AR_1 twice; here it is T_F + T_B + T_AR + T_U.
- The first layer needs no gradient of its inputs, so its T_B is half of what the formula says. Layer lists say what
  it takes (layers.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softnic.model.layers import Layer

FRAME = 1448
"""Bytes that a frame carries (MTU 1500)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """N workers, each with a smart NIC."""

    N: int
    P_Worker: float
    """FLOP/s of a worker."""
    BW_eth: float
    """bit/s, each way."""
    alpha: float = 1.0
    """Share of BW_eth that gradients, or what they are compressed to, can have."""
    beta: float = 1.0
    """Compression ratio."""
    b: int = 32
    """Bits of a gradient."""
    P_FPGA: float = math.inf
    """Additions a second."""
    P_codec: float = math.inf
    """Gradients encoded, and decoded, a second. Not in the paper, whose compressors are as fast as the link."""
    BW_pcie: float = math.inf
    """bit/s between the worker's memory and its NIC."""
    update_s: float = 0.0
    """T_U of one parameter: the paper scales a measured one linearly."""
    latency_s: float = 0.0
    """From a NIC to the next one, beside the time that bytes take at the link's rate. Not in the paper."""
    batch_s: float = 0.0
    """What a chunk of more than one frame waits, beside that, for the batch that its last frame leaves with (interrupt
    moderation). Not in the paper."""
    grain: int = 32 << 10
    """Bytes of a chunk that are passed on at least while the rest still comes (softnic/collectives). Counts with
    `latency_s` only."""

    def __post_init__(self) -> None:
        if self.N < 1:
            raise ValueError(f"a system has 1 worker or more, not {self.N}")
        for name in ("P_Worker", "BW_eth", "alpha", "beta", "b", "P_FPGA", "P_codec", "BW_pcie"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)!r}")


def T_F(layer: Layer, B: int, system: System) -> float:
    """Forward pass of a layer."""
    return layer.forward_flop * B / system.P_Worker


def T_B(layer: Layer, B: int, system: System) -> float:
    """Backward pass of a layer."""
    return layer.backward_flop * B / system.P_Worker


def R(layer: Layer, system: System) -> float:
    """Bits of a layer's gradients, padded so that they make N equal chunks."""
    return system.b * system.N * math.ceil(layer.parameters / system.N)


def T_chunk(layer: Layer, system: System) -> float:
    """A chunk at the link's rate."""
    return R(layer, system) / (system.N * system.alpha * system.BW_eth * system.beta)


def T_latency(layer: Layer, system: System) -> float:
    """Of a chunk, from its last bit at the sender to the next node. Not in the paper."""
    one_frame = R(layer, system) / (8 * system.N * system.beta) <= FRAME
    return system.latency_s + (0.0 if one_frame else system.batch_s)


def T_step(layer: Layer, system: System) -> float:
    """One of the ring's 2(N-1) steps: a chunk at the link's rate; where that is less, the time until the next node has
    enough of it to pass on."""
    chunk, latency_s = T_chunk(layer, system), T_latency(layer, system)
    if not latency_s:
        return chunk
    grain = 8 * system.grain / (system.alpha * system.BW_eth * system.beta)
    return max(chunk, min(chunk, grain) + latency_s)


def T_ring(layer: Layer, system: System) -> float:
    """Transfer through the ring: its steps, the last of which ends when all of its chunk has arrived."""
    if system.N == 1:
        return 0.0
    return (2 * (system.N - 1) - 1) * T_step(layer, system) + T_chunk(layer, system) + T_latency(layer, system)


def T_add(layer: Layer, system: System) -> float:
    """Additions: a chunk in each of the first N - 1 steps (the paper: of all 2(N - 1), see above)."""
    return R(layer, system) * (system.N - 1) / (system.N * system.P_FPGA * system.b)


def T_mem(layer: Layer, system: System) -> float:
    """Gradients from the worker's memory, sums back to it."""
    return 2 * R(layer, system) / system.BW_pcie if system.N > 1 else 0.0


def T_codec(layer: Layer, system: System) -> float:
    """Encoding of what is sent, and decoding of what comes meanwhile. Not in the paper."""
    return R(layer, system) * 2 * (system.N - 1) / (system.N * system.P_codec * system.b)


def T_AR(layer: Layer, system: System) -> float:
    """All-reduce of a layer: the slowest of what overlaps."""
    return max(T_ring(layer, system), T_add(layer, system), T_mem(layer, system), T_codec(layer, system))


def T_U(layer: Layer, system: System) -> float:
    """Weight update of a layer."""
    return layer.parameters * system.update_s


@dataclass(frozen=True, slots=True)
class IterationTime:
    """Seconds of one training iteration, as the papers break it down."""

    forward_s: float
    backward_s: float
    exposed_s: float
    """Exchange that no computation hides."""
    update_s: float

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.exposed_s + self.update_s


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Of one layer: seconds of computation, and of its exchange."""

    forward_s: float
    backward_s: float
    exchange_s: float
    update_s: float


def overlapped(layer_times: Sequence[LayerTimes]) -> IterationTime:
    """T_total's trace (Fig. 3b): one all-reduce at a time; while it runs, the worker updates the layer before it and
    computes the gradients of the layer behind it, then waits. `works` are from input to output."""
    if not layer_times:
        raise ValueError("a network has a layer or more")
    exposed = 0.0
    last = len(layer_times) - 1
    for index in range(last, -1, -1):
        hidden = layer_times[index - 1].backward_s if index > 0 else 0.0
        hidden += layer_times[index + 1].update_s if index < last else 0.0
        exposed += max(0.0, layer_times[index].exchange_s - hidden)
    return _iteration(layer_times, exposed)


def sequential(layer_times: Sequence[LayerTimes]) -> IterationTime:
    """The worker computes, then exchanges all layers, then updates: nothing overlaps."""
    return _iteration(layer_times, sum(work.exchange_s for work in layer_times))


def _iteration(layer_times: Sequence[LayerTimes], exposed: float) -> IterationTime:
    return IterationTime(
        sum(work.forward_s for work in layer_times),
        sum(work.backward_s for work in layer_times),
        exposed,
        sum(work.update_s for work in layer_times),
    )


def layer_times(layers: Sequence[Layer], B: int, system: System) -> list[LayerTimes]:
    """The paper's times of each layer."""
    return [LayerTimes(T_F(one, B, system), T_B(one, B, system), T_AR(one, system), T_U(one, system)) for one in layers]


def T_total(layers: Sequence[Layer], B: int, system: System) -> float:
    """Of a training iteration with overlapped, NIC-executed all-reduce."""
    return overlapped(layer_times(layers, B, system)).total_s
