"""The iteration time of training with smart NICs: Ma et al. (arXiv 2204.10943), section IV-C.

Symbols are the paper's. Layer l has M_l x M_l weights (`Layer.parameters`), a mini-batch has B examples, N nodes
train; b bits are added at a time, `alpha` is the usable fraction of the Ethernet's BW_eth, `beta` the compression
ratio. Times are in seconds, bandwidths in bit/s, P_Worker in FLOP/s, P_FPGA in additions a second.

    T_F_l = 2 M_l^2 B / P_Worker            T_B_l = 4 M_l^2 B / P_Worker         R_l = b N ceil(M_l^2 / N)
    T_ring_l = R_l 2(N-1) / (N alpha BW_eth beta)      T_add_l = R_l 2(N-1) / (N P_FPGA b)
    T_mem_l = 2 R_l / BW_pcie               T_AR_l = max(T_ring_l, T_add_l, T_mem_l)
    T_total = sum of T_F + T_B_L + max(T_B_(L-1), T_AR_L) + sum over l = 2..L-1 of max(T_U_(l+1) + T_B_(l-1), T_AR_l)
              + max(T_U_2, T_AR_1) + T_U_1

Layers are generalised from square ones to any number of parameters and FLOP (layers.py).

Notes on the paper's formulas:

- T_add counts an addition in each of the 2(N-1) steps. Only the first N-1 add (as section II-B says); the others move
  sums. `T_add` counts N-1.
- T_ring has no latency. A node forwards a chunk in parts of `grain` bytes at least, so a step takes no less than such a
  part and its latency to the next node, `latency_s`: 0 in the paper, whose layers are large and nodes few (`T_step`).
- T_total holds for two layers or more. For one it would count T_AR_1 twice; here it is T_F + T_B + T_AR + T_U.
- The first layer needs no gradient of its inputs, so its T_B is half of the formula's. Lists of layers have the right
  figure (layers.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softnic.model.layers import Layer

FRAME = 1448
"""Payload bytes of a frame (MTU 1500)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """N workers, each with a smart NIC."""

    N: int
    P_Worker: float
    """FLOP/s of a worker."""
    BW_eth: float
    """bit/s, each way."""
    alpha: float = 1.0
    """Fraction of BW_eth that is available to (compressed) gradients."""
    beta: float = 1.0
    """Compression ratio."""
    b: int = 32
    """Bits of a gradient."""
    P_FPGA: float = math.inf
    """Additions a second."""
    P_codec: float = math.inf
    """Gradients encoded, and decoded, a second. Not in the paper, whose compression is as fast as the link."""
    BW_pcie: float = math.inf
    """bit/s between the worker's memory and its NIC."""
    update_s: float = 0.0
    """T_U of one parameter: the paper scales a measured one linearly."""
    latency_s: float = 0.0
    """From a NIC to the next one, in addition to the time of the bytes at the link's rate. Not in the paper."""
    batch_s: float = 0.0
    """Mean time that the last frame of a chunk of several frames waits for its batch to leave (interrupt moderation).
    Not in the paper."""
    grain: int = 32 << 10
    """The fewest bytes of a chunk that are forwarded while the rest still arrives (softnic/collectives). Used with
    `latency_s` only."""

    def __post_init__(self) -> None:
        if self.N < 1:
            raise ValueError(f"a system has 1 worker or more, not {self.N}")
        for name in ("P_Worker", "BW_eth", "alpha", "beta", "b", "P_FPGA", "P_codec", "BW_pcie"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)!r}")


def T_F(layer: Layer, B: int, system: System) -> float:
    """Return the time of the forward pass of a layer."""
    return layer.forward_flop * B / system.P_Worker


def T_B(layer: Layer, B: int, system: System) -> float:
    """Return the time of the backward pass of a layer."""
    return layer.backward_flop * B / system.P_Worker


def R(layer: Layer, system: System) -> float:
    """Return the bits of a layer's gradients, padded to N equal chunks."""
    return system.b * system.N * math.ceil(layer.parameters / system.N)


def T_chunk(layer: Layer, system: System) -> float:
    """Return the time of a chunk at the link's rate."""
    return R(layer, system) / (system.N * system.alpha * system.BW_eth * system.beta)


def T_latency(layer: Layer, system: System) -> float:
    """Return the latency of a chunk, from its last bit at the sender to the next node. Not in the paper."""
    one_frame = R(layer, system) / (8 * system.N * system.beta) <= FRAME
    return system.latency_s + (0.0 if one_frame else system.batch_s)


def T_step(layer: Layer, system: System) -> float:
    """Return the time of one of the ring's 2(N-1) steps: that of a chunk at the link's rate, or, if that is longer, the
    time until the next node has enough of it to forward."""
    chunk, latency_s = T_chunk(layer, system), T_latency(layer, system)
    if not latency_s:
        return chunk
    grain = 8 * system.grain / (system.alpha * system.BW_eth * system.beta)
    return max(chunk, min(chunk, grain) + latency_s)


def T_ring(layer: Layer, system: System) -> float:
    """Return the time of the transfer through the ring. Its last step ends when the whole chunk has arrived."""
    if system.N == 1:
        return 0.0
    return (2 * (system.N - 1) - 1) * T_step(layer, system) + T_chunk(layer, system) + T_latency(layer, system)


def T_add(layer: Layer, system: System) -> float:
    """Return the time of additions: a chunk in each of the first N - 1 steps (in the paper: in all 2(N - 1))."""
    return R(layer, system) * (system.N - 1) / (system.N * system.P_FPGA * system.b)


def T_mem(layer: Layer, system: System) -> float:
    """Return the time of moving gradients from the worker's memory, and sums back."""
    return 2 * R(layer, system) / system.BW_pcie if system.N > 1 else 0.0


def T_codec(layer: Layer, system: System) -> float:
    """Return the time of encoding what is sent, and decoding what is received meanwhile. Not in the paper."""
    return R(layer, system) * 2 * (system.N - 1) / (system.N * system.P_codec * system.b)


def T_AR(layer: Layer, system: System) -> float:
    """Return the time of the all-reduce of a layer: that of its slowest part, as all overlap."""
    return max(T_ring(layer, system), T_add(layer, system), T_mem(layer, system), T_codec(layer, system))


def T_U(layer: Layer, system: System) -> float:
    """Return the time of the weight update of a layer."""
    return layer.parameters * system.update_s


@dataclass(frozen=True, slots=True)
class IterationTime:
    """Seconds of one training iteration, by the papers' parts."""

    forward_s: float
    backward_s: float
    exposed_s: float
    """The part of the exchange that no computation hides."""
    update_s: float

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.exposed_s + self.update_s


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of one layer's computation and exchange."""

    forward_s: float
    backward_s: float
    exchange_s: float
    update_s: float


def overlapped(times: Sequence[LayerTimes]) -> IterationTime:
    """Return the time of an iteration with overlap, the trace of T_total (Fig. 3b).

    One all-reduce runs at a time. Meanwhile the worker updates the layer above and computes the gradients of the layer
    below, then waits. `times` are those of the layers from input to output.
    """
    if not times:
        raise ValueError("a network has a layer or more")
    exposed = 0.0
    last = len(times) - 1
    for index in range(last, -1, -1):
        hidden = times[index - 1].backward_s if index > 0 else 0.0
        hidden += times[index + 1].update_s if index < last else 0.0
        exposed += max(0.0, times[index].exchange_s - hidden)
    return _iteration(times, exposed)


def sequential(times: Sequence[LayerTimes]) -> IterationTime:
    """Return the time of an iteration that computes, then exchanges all layers, then updates."""
    return _iteration(times, sum(layer.exchange_s for layer in times))


def _iteration(times: Sequence[LayerTimes], exposed: float) -> IterationTime:
    return IterationTime(
        sum(layer.forward_s for layer in times),
        sum(layer.backward_s for layer in times),
        exposed,
        sum(layer.update_s for layer in times),
    )


def layer_times(layers: Sequence[Layer], B: int, system: System) -> list[LayerTimes]:
    """Return the paper's times of each layer."""
    return [LayerTimes(T_F(one, B, system), T_B(one, B, system), T_AR(one, system), T_U(one, system)) for one in layers]


def T_total(layers: Sequence[Layer], B: int, system: System) -> float:
    """Return the time of a training iteration with overlapped all-reduces executed by the NICs."""
    return overlapped(layer_times(layers, B, system)).total_s
