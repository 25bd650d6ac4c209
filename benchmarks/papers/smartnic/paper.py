"""Published figures of the AI smart NIC, each with the figure or sentence that states it.

Ma et al., "FPGA-based AI Smart NICs for Scalable Distributed AI Training Systems", arXiv 2204.10943. Bars whose height
neither text nor tables give are not here. Shares are 0..1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmartNic:
    """The set-up of sections III and V-B: a perceptron of `layers` square matrices."""

    layers: int = 20
    width: int = 2048
    nodes: int = 6
    host_rate: str = "100gbit"
    nic_rate: str = "40gbit"
    compression: float = 3.8
    """Section IV-B: of BFP16."""


MLP = SmartNic()
FIG_2_BATCH = 1792
FIG_2_EXPOSED_SHARE = 0.51
"""Section III: of the naive iteration, exposed all-reduce."""
FIG_2_EXPOSED_FACTOR = 50.0
"""Exposed all-reduce, naive to overlapped."""
FIG_2_SPEED_UP = 1.85
FIG_2_SLOWER_BACKWARD = 0.11
FIG_2_SCALES_TO = 12
"""Workers up to which ring, Rabenseifner and the default scheme scale well."""
FIG_4_BATCHES = (448, 1792)
FIG_4_BATCH = 448
FIG_4_LESS_EXPOSED = 0.37
"""Section V-B, NIC without BFP against the overlapped baseline, on six nodes."""
FIG_4_LESS_BACKWARD = 0.10
FIG_4_LESS_TOTAL = 0.18
FIG_4_LESS_EXPOSED_BFP = 0.95
FIG_4_LESS_TOTAL_BFP = 0.40
FIG_4_GAIN_AT_32 = {448: {"NIC": 1.8, "NIC+BFP": 2.5}, 1792: {"NIC": 1.4, "NIC+BFP": 1.4}}
"""Section V-B: throughput against the baseline on 32 nodes. At 1792 BFP adds nothing."""
FIG_4_GAIN_AT_6 = {448: {"NIC+BFP": 1.6}, 1792: {"NIC": 1.1, "NIC+BFP": 1.1}}
"""Abstract and section V-B."""
FIG_4_MODEL_ERROR = 0.03
