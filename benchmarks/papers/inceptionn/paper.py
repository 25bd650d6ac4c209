"""INCEPTIONN's published figures, each with the table, figure or sentence that states it.

Li et al., "A Network-Centric Hardware/Algorithm Co-Design to Accelerate Distributed Training of Deep Neural Networks"
(INCEPTIONN), MICRO 2018. Bars whose height neither text nor tables give are not here. Shares are 0..1, times are
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")

MODELS = ("alexnet", "hdc", "resnet50", "vgg16")
"""In the order of the paper's figures."""
TITLES = {"alexnet": "AlexNet", "hdc": "HDC", "resnet50": "ResNet-50", "vgg16": "VGG-16"}
BOUNDS = (10, 8, 6)
"""k of the error bounds 2^-k of Fig. 14 and Table III."""
WORKERS = 4
"""Section VIII-A; WA has an aggregator besides."""
LINK = "10gbit"
"""Section VII-C: Intel X540T1 NICs and a 10 Gb Ethernet switch."""


def by_model(alexnet: T, hdc: T, resnet50: T, vgg16: T) -> Mapping[str, T]:
    return MappingProxyType(dict(zip(MODELS, (alexnet, hdc, resnet50, vgg16), strict=True)))


MODEL_MB = by_model(233.0, 2.5, 98.0, 525.0)
"""Section VII-A and Fig. 3. Its MB are 2^20 bytes, as the first, third and fourth show."""


@dataclass(frozen=True)
class Hyperparameters:
    """Table I. Rates without the paper's minus sign."""

    batch: int
    """Samples a node and iteration."""
    rate: float
    reduction: float
    """Divisor of the rate, applied every `reduction_iterations`."""
    reduction_iterations: int
    momentum: float
    weight_decay: float
    iterations: int


TRAINING = by_model(
    Hyperparameters(64, 0.01, 10, 100_000, 0.9, 0.00005, 320_000),
    Hyperparameters(25, 0.1, 5, 2_000, 0.9, 0.00005, 10_000),
    Hyperparameters(16, 0.1, 10, 200_000, 0.9, 0.0001, 600_000),
    Hyperparameters(64, 0.01, 10, 100_000, 0.9, 0.00005, 370_000),
)


@dataclass(frozen=True)
class IterationTimes:
    """Table II: seconds of 100 iterations on four workers and an aggregator."""

    forward: float
    backward: float
    gpu_copy: float
    """0 where the table has none."""
    gradient_sum: float
    communicate: float
    update: float
    total: float

    @property
    def steps(self) -> tuple[float, ...]:
        """All but the total, which is not their sum for VGG-16."""
        return (self.forward, self.backward, self.gpu_copy, self.gradient_sum, self.communicate, self.update)


TABLE_2 = by_model(
    IterationTimes(3.13, 16.22, 5.68, 8.94, 148.71, 13.67, 196.35),
    IterationTimes(0.08, 0.07, 0.0, 0.09, 1.36, 0.09, 1.7),
    IterationTimes(2.63, 4.87, 2.24, 3.68, 60.58, 1.55, 75.55),
    IterationTimes(32.25, 142.34, 12.09, 19.89, 583.58, 30.50, 823.65),
)
TABLE_2_ITERATIONS = 100

TABLE_3_18_BIT = by_model((0.211, 0.026, 0.0), (0.015, 0.009, 0.004), (0.005, 0.001, 0.0), (0.049, 0.0, 0.0))
"""Table III, for the bounds in BOUNDS. Its columns of 2 and 10 bits are given by the sentences below."""
TABLE_3_34_BIT = by_model((0.001, 0.001, 0.001), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
TWO_BITS_AT_10 = (0.75, 0.94)
"""Section VIII-C: with 2^-10, 75 % to 94 % of gradients become two-bit vectors."""
TWO_BITS_AT_6 = 0.90
"""Section VIII-C: with 2^-6, more than 90 % do, for all models."""

FIG_7_SOFTWARE_FACTORS = (2.0, 4.0)
"""Section VI: training takes 2 to 4 times as long with Snappy or SZ in software."""
SNAPPY_RATIO = 1.5
"""Section III-A: "a poor compression ratio of ~1.5"."""

FIG_12_LESS_TRAINING_INC = by_model(0.52, 0.38, 0.49, 0.31)
"""Section VIII-A: share of WA's training time that INC saves."""
FIG_12_LESS_COMMUNICATION_INC = by_model(0.55, 0.39, 0.58, 0.36)
FIG_12_LESS_COMMUNICATION_WA_C = 0.308
"""Section VIII-A, "~30.8 %", for WA+C against WA."""
FIG_12_LESS_COMMUNICATION_INC_C = (0.709, 0.807)
"""Abstract, against WA: 70.9 to 80.7 %."""
FIG_12_LESS_COMMUNICATION_INC_C_TO_INC = 0.539
FIG_12_SPEED_UP_INC_C = (2.2, 3.1)
"""Abstract and section VIII-A, against WA; VGG-16 and AlexNet by section VIII-B."""
FIG_12_CODEC = "inceptionn:10"

FIG_13_EXTRA_EPOCHS = (1, 2)
"""Section VIII-B: additional epochs of INC+C to the same accuracy."""
FIG_13_SPEED_UP = {"alexnet": 3.1, "vgg16": 2.2}

FIG_14_BASE_ACCURACY = by_model(0.572, 0.985, 0.753, 0.715)
FIG_14_TRUNCATED_RATIO = {16: 2.0, 22: 3.2, 24: 4.0}
"""By the number of dropped bits: 32 / (32 - bits); "4x at most" in section VIII-C."""
FIG_14_BEST_RATIO = 14.9
"""Section VIII-C: the highest of INC."""
FIG_14_RATIO_AT_10 = (5.5, 11.6)
"""Section VIII-C: of INC with 2^-10, over the models."""
FIG_14_MOST_LOST = 0.02
"""Section VIII-C: less than this much accuracy is lost with 2^-6."""

FIG_15_NODES = (4, 5, 6, 7, 8)
"""Section VIII-D. Normalised to WA of four nodes; WA grows almost linearly, INC stays almost constant."""
