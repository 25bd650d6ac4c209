"""LGC's published figures, each with the table or section that states it.

Abrahamyan, Chen, Bekoulis and Deligiannis, "Learned Gradient Compression for Distributed Deep Learning" (2021).
Accuracies are shares 0..1, sizes bytes, times seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BASELINE, SPARSE_GD, DGC, SCALECOM, RING, SERVER = (
    "Baseline",
    "Sparse GD",
    "DGC",
    "ScaleCom",
    "LGC (ring-allreduce)",
    "LGC (parameter server)",
)


@dataclass(frozen=True)
class PublishedMethod:
    accuracy: float
    ratio: str
    """As printed; of a parameter server, of the worker that sends the common representation, and of the others."""


TABLE_4: Mapping[str, PublishedMethod] = {
    BASELINE: PublishedMethod(0.7598, "1"),
    SERVER: PublishedMethod(0.7588, "386/2800"),
    RING: PublishedMethod(0.7591, "202"),
    SCALECOM: PublishedMethod(0.7598, "96"),
    DGC: PublishedMethod(0.7601, "277"),
    SPARSE_GD: PublishedMethod(0.7554, "277"),
}
"""ResNet50 on ImageNet, eight nodes."""
TABLE_6: Mapping[str, PublishedMethod] = {
    BASELINE: PublishedMethod(0.9188, "1"),
    SPARSE_GD: PublishedMethod(0.9182, "1000"),
    DGC: PublishedMethod(0.932, "1000"),
    RING: PublishedMethod(0.914, "3193"),
    SERVER: PublishedMethod(0.9327, "5709/8616"),
}
"""ResNet50 on Cifar10, two nodes."""
TABLE_5: Mapping[str, Mapping[str, float]] = {
    RING: {"full": 1.0, "learn": 0.9, "compressed": 0.4},
    SERVER: {"full": 1.0, "learn": 1.6, "compressed": 0.6},
}
"""Seconds of an iteration, by phase."""
SPEED_UP: Mapping[str, float] = {RING: 2.56, SERVER: 1.7}
"""Section VI-B, ResNet50 on ImageNet, eight nodes."""
PHASE_SHARES: Mapping[str, float] = {"full": 0.044, "learn": 0.066, "compressed": 0.89}
"""Section VI-A: the last phase has about 89 % of the steps, the others are of 200 and 300."""
SERVER_OTHERS = "LGC (parameter server), other workers"
SIZES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "ResNet50": {
        BASELINE: (102.2, 1),
        DGC: (0.102, 1000),
        RING: (0.032, 3193),
        SERVER: (0.017, 5709),
        SERVER_OTHERS: (0.012, 8616),
    },
    "ResNet101": {
        BASELINE: (170, 1),
        DGC: (0.17, 1000),
        RING: (0.074, 2297),
        SERVER: (0.021, 8095),
        SERVER_OTHERS: (0.01, 17000),
    },
    "PSPNet": {
        BASELINE: (120, 1),
        DGC: (0.29, 413),
        RING: (0.261, 459),
        SERVER: (0.17, 693),
        SERVER_OTHERS: (0.16, 722),
    },
}
"""Table VI: 10^6 bytes a step, and ratio, by network."""
ENCODER_MS, DECODER_MS = 0.007, 1.0
"""Section VI-B, of a ring; of a server the encoder takes 0.01 ms."""
RTX_2080_TI_FLOPS = 13.45e12
"""float32 at peak, of the GPU that the paper has (not in the paper)."""
COMMON = 0.8
"""Section III: share of a layer's entropy that is common to both nodes, approximately."""
RESNET101_WORDS = 42.5e6
"""Table VI's 170 MB."""
RESNET101_SENT = 0.021e6
"""Table VI: bytes of the worker that sends most."""
SHARE = 0.001
"""alpha, section VI-A."""
