"""What the roundings of a sum cost: the error of an all-reduce, in errors of one encoding, by algorithm.

python -m benchmarks.sums [--codec rht:4 ...] [--ranks 8 ...] [--data laplace ...] [--markdown] [--json FILE]

Every rank has independent floats of one distribution. The error of one encoding is |decoded - x|^2 / |x|^2 of all
contributions together, that of the sum |result - exact|^2 / |exact|^2. To round each contribution once costs one such
error whatever the number of ranks, to round the whole sum another one, and every rounding of a partial sum more. The
schedules and codecs of real calls, in one process without a network; and all ranks must end with the same bits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from benchmarks import harness, schedules
from benchmarks.schedules import SAME_BITS, ReductionCases, allreduced
from softnic import codecs
from softnic.collectives.schedule import choose
from softnic.experiments.data import Floats
from softnic.measure.progress import as_measured
from softnic.measure.report import Column, MeasurementReport, Progress, figure

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = {
    "gaussian": lambda rng, count: rng.standard_normal(count),
    "laplace": lambda rng, count: rng.laplace(size=count),
    "student3": lambda rng, count: rng.standard_t(3, count),
}
SIGMA = 0.01
SIZES = (1 << 12, 1 << 20, 1 << 24)
"""Bytes: one of each class that algorithms are chosen by."""


@dataclass(frozen=True)
class SumCases(ReductionCases):
    seed: int = 1


CASES = SumCases(
    ("rht:3", "rht:4", "rht:5", "rht:6", "bounded:10", "bfp:7", "truncate:16", "mx:e4m3", "mx:e2m1"),
    (2, 4, 8, 16),
    tuple(DISTRIBUTIONS),
)


@dataclass(frozen=True)
class SumRow:
    codec: str
    ranks: int
    data: str
    algorithm: str
    of_one: float
    """The error of one encoding."""
    of_sum: float
    """The error of the all-reduce."""
    chosen: bool
    """For some size, by calls that name no algorithm."""

    @property
    def encodings(self) -> float:
        return self.of_sum / self.of_one


def run(cases: SumCases, progress: Progress) -> MeasurementReport[SumRow]:
    """Raises ValueError for names that are none, MeasurementError where ranks end with different bits."""
    rows: list[SumRow] = []
    for name in cases.codecs:
        for size in cases.ranks:
            progress(f"{name}, {size} ranks")
            for data in cases.data:
                values = DISTRIBUTIONS[data](np.random.default_rng(cases.seed), cases.count * size) * SIGMA
                words = values.astype(np.float32).reshape(size, cases.count)
                rows += as_measured(measured_rows(words, name, data, cases.algorithms), _columns(), progress)
    title = f"Error of an all-reduce of {cases.count} floats a rank, in errors of one encoding"
    return SumReport("sums", title, _columns(), rows, asdict(cases), [SAME_BITS])


def measured_rows(words: Floats, name: str, data: str, algorithms: tuple[str, ...]) -> Iterator[SumRow]:
    """Sum the rows of `words` with every algorithm. Raises MeasurementError."""
    codec, size = codecs.get(name), len(words)
    exact = words.sum(axis=0, dtype=np.float64)
    of_one = _error(np.stack([codec.roundtrip(each) for each in words]), words)
    chosen = {choose("allreduce", nbytes, size, name) for nbytes in SIZES}
    for algorithm in algorithms:
        of_sum = _error(allreduced(words, algorithm, name), exact)
        yield SumRow(name, size, data, algorithm, of_one, of_sum, algorithm in chosen)


def _error(values: Floats, exact: npt.NDArray[np.floating]) -> float:
    """Return the squared error as a share of the signal's square."""
    wanted = exact.astype(np.float64)
    return float(np.sum((values - wanted) ** 2) / np.sum(wanted**2))


def _columns() -> list[Column[SumRow]]:
    return [
        Column("codec", lambda row: row.codec, left=True),
        Column("ranks", lambda row: str(row.ranks)),
        Column("data", lambda row: row.data, left=True),
        Column("algorithm", lambda row: row.algorithm, left=True),
        Column("one encoding", lambda row: figure(row.of_one, ".2e")),
        Column("sum", lambda row: figure(row.of_sum, ".2e")),
        Column("encodings", lambda row: figure(row.encodings, ".2f")),
        Column("chosen", lambda row: "yes" if row.chosen else "", left=True),
    ]


class SumReport(MeasurementReport[SumRow]):
    def markdown(self) -> str:
        """Return one row per codec and number of ranks, with each algorithm's encodings by distribution."""
        algorithms = list(dict.fromkeys(row.algorithm for row in self.rows))
        lines = [f"| codec | ranks | {' | '.join(algorithms)} | chosen |", f"|---|---|{'---|' * len(algorithms)}---|"]
        for (codec, ranks), found in schedules.by_case(self.rows).items():
            cells = [", ".join(figure(row.encodings, ".2f") for row in rows) for rows in found.values()]
            chosen = ", ".join(name for name, rows in found.items() if rows[0].chosen)
            lines.append(f"| {codec} | {ranks} | {' | '.join(cells)} | {chosen} |")
        return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    schedules.add_options(parser, CASES)
    parser.add_argument("--data", action="append", choices=CASES.data, help="may be repeated (all)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[SumRow]]:
    return [run(schedules.cases_of(given, CASES), progress)]


if __name__ == "__main__":
    sys.exit(harness.main("sums", __doc__, measured, add_options))
