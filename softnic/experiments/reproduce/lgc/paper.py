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
COMMON = 0.8
"""Section III: share of a layer's entropy that is common to both nodes, approximately."""
RESNET101_WORDS = 42.5e6
"""Table VI's 170 MB."""
RESNET101_SENT = 0.021e6
"""Table VI: bytes of the worker that sends most."""
SHARE = 0.001
"""alpha, section VI-A."""
