"""What is best to scale quantised levels by: rht's scale, which is idempotent, beside EDEN's, which is unbiased.

python -m benchmarks.rounding [--data DIR] [--method rht:4 ...] [--steps 800] [--seed 7 ...] [--markdown] [--json FILE]

INCEPTIONN's digit classifier is trained by four ranks, in one process without a network: each rank's gradient is
rounded, and so is their sum, without error feedback. `rht:b` is the codec. `eden:b` rotates its blocks by signs drawn
anew for each rank and step, takes the levels of Lloyd and Max for a standard normal distribution, and scales a block y
with levels q by |y|^2 / <y, q>, so that its mean over rotations is y (Vargaftik et al., ICML 2022).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from softnic import codecs
from softnic.arguments import count
from softnic.experiments import torch_models
from softnic.experiments.data import Floats, batches_of_rank
from softnic.experiments.torch_replica import TorchReplica
from softnic.measure.progress import as_measured
from softnic.measure.report import Column, MeasurementError, MeasurementReport, Progress, figure

BLOCK = 128
RANKS, BATCH, RATE, MOMENTUM = 4, 25, 0.01, 0.9
EXACT, EDEN = "exact", "eden"
METHODS = (EXACT, "rht:4", "eden:4", "rht:3", "eden:3")
Rounding = Callable[[Floats], Floats]


@dataclass(frozen=True)
class RoundingSettings:
    methods: tuple[str, ...] = METHODS
    steps: int = 800
    seeds: tuple[int, ...] = (7, 8, 9)
    data: str | None = None


@dataclass(frozen=True)
class RoundingRow:
    method: str
    accuracies: list[float]
    """On the test set, by seed."""
    error: float
    """Of one rounding of one rank's gradient: |rounded - given|^2 / |given|^2, mean over the steps of all seeds."""
    bias: float
    """<given, rounded> / |given|^2 - 1, the mean: 0 without bias."""


def hadamard(size: int) -> npt.NDArray[np.float32]:
    """Return the orthonormal Walsh-Hadamard matrix of a power of two."""
    matrix: npt.NDArray[np.float64] = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    orthonormal: npt.NDArray[np.float32] = (matrix / size**0.5).astype(np.float32)
    return orthonormal


def lloyd_max(count: int) -> npt.NDArray[np.float32]:
    """Return the levels of the best quantiser of a standard normal distribution, by Lloyd's iteration."""
    samples = np.sort(np.random.default_rng(0).standard_normal(1 << 18))
    samples = (samples - samples[::-1]) / 2
    levels = np.linspace(-2, 2, count)
    for _ in range(300):
        ends = np.searchsorted(samples, (levels[1:] + levels[:-1]) / 2)
        levels = np.array([part.mean() for part in np.split(samples, ends)])
    return levels.astype(np.float32)


class Eden:
    """Unbiased rounding to 2^bits levels a float, each call by a rotation of its own."""

    def __init__(self, bits: int, seed: int) -> None:
        self._levels = lloyd_max(1 << bits)
        self._thresholds = (self._levels[1:] + self._levels[:-1]) / 2
        self._rotation = hadamard(BLOCK)
        self._rng = np.random.default_rng(seed)

    def __call__(self, given: Floats) -> Floats:
        padded = np.zeros(-(-given.size // BLOCK) * BLOCK, np.float32)
        padded[: given.size] = given
        signs = self._rng.choice(np.array([-1, 1], np.float32), BLOCK)
        rotated = padded.reshape(-1, BLOCK) * signs @ self._rotation
        squares = (rotated**2).sum(1, keepdims=True)
        unit = rotated * np.sqrt(BLOCK / np.where(squares == 0, 1, squares))
        levels = self._levels[np.searchsorted(self._thresholds, unit)]
        along = (rotated * levels).sum(1, keepdims=True)
        scaled = levels * (squares / np.where(along == 0, 1, along))
        return np.ascontiguousarray((scaled @ self._rotation * signs).ravel()[: given.size])


def rounding(method: str, seed: int) -> Rounding:
    """Return what a method does to an array. Raises MeasurementError for a name that is none."""
    name, _, bits = method.partition(":")
    if method == EXACT:
        return lambda given: given
    if name == EDEN and bits.isdecimal() and 1 <= int(bits) <= 8:
        return Eden(int(bits), seed)
    try:
        return codecs.get(method).roundtrip
    except ValueError as error:
        raise MeasurementError(f"{method}: exact, eden:BITS (1 to 8) or a codec ({error})") from error


class Trained:
    """One training of all ranks by one method."""

    def __init__(self, method: str, seed: int, path: Path | None) -> None:
        self._data = torch_models.data("hdc", path)
        self._replica = TorchReplica(torch_models.build("hdc", seed), lambda _: RATE, MOMENTUM)
        self._rounding = rounding(method, seed)
        self._batches = [
            batches_of_rank(self._data.train_inputs, self._data.train_labels, rank, RANKS, BATCH, seed)
            for rank in range(RANKS)
        ]
        self.errors: list[float] = []
        self.biases: list[float] = []

    def step(self) -> None:
        """Take a step by the mean of the ranks' rounded gradients, rounded once more."""
        replica = self._replica
        total = self._rounding(np.sum(list(self._contributions()), axis=0, dtype=np.float32))
        replica.gradients[:] = total / RANKS
        replica.timeline.start()
        replica.update()
        replica.timeline.stop()

    def _contributions(self) -> Iterator[Floats]:
        for batches in self._batches:
            self._replica.accumulate([next(batches)])
            given = self._replica.gradients.copy()
            rounded = self._rounding(given)
            square = float(given @ given)
            self.errors.append(float(((rounded - given) ** 2).sum()) / square)
            self.biases.append(float(given @ rounded) / square - 1)
            yield rounded

    def accuracy(self) -> float:
        _, correct, answers = self._replica.evaluate(self._data.test_inputs, self._data.test_labels)
        return correct / answers


def measured_row(method: str, settings: RoundingSettings, progress: Progress) -> RoundingRow:
    accuracies, errors, biases = [], [], []
    for seed in settings.seeds:
        trained = Trained(method, seed, None if settings.data is None else Path(settings.data))
        for step in range(settings.steps):
            progress(f"{method}, seed {seed}, step {step} of {settings.steps}")
            trained.step()
        accuracies.append(trained.accuracy())
        errors += trained.errors
        biases += trained.biases
    return RoundingRow(method, accuracies, float(np.mean(errors)), float(np.mean(biases)))


def columns() -> list[Column[RoundingRow]]:
    return [
        Column("method", lambda row: row.method, left=True),
        Column("accuracy, %", lambda row: ", ".join(f"{100 * each:.2f}" for each in row.accuracies)),
        Column("mean", lambda row: f"{100 * float(np.mean(row.accuracies)):.2f}"),
        Column("error", lambda row: figure(row.error, ".4f")),
        Column("bias", lambda row: figure(row.bias, "+.4f")),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    default = RoundingSettings()
    parser.add_argument("--data", metavar="DIR", help="MNIST's IDX files (scikit-learn's digits)")
    parser.add_argument("--method", action="append", help=f"may be repeated ({', '.join(default.methods)})")
    parser.add_argument("--steps", type=count(1), default=default.steps, help=f"of each training ({default.steps})")
    parser.add_argument("--seed", type=count(0), action="append", help="may be repeated (7, 8, 9)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[RoundingRow]]:
    default = RoundingSettings()
    settings = RoundingSettings(
        tuple(given.method or default.methods), given.steps, tuple(given.seed or default.seeds), given.data
    )
    made = (measured_row(method, settings, progress) for method in settings.methods)
    rows = as_measured(made, columns(), progress)
    title = f"Roundings of gradients, {RANKS} ranks of {BATCH} samples, {settings.steps} steps"
    return [MeasurementReport("rounding", title, columns(), rows, asdict(settings))]


if __name__ == "__main__":
    sys.exit(harness.main("rounding", __doc__, measured, add_options))
