"""How wrong reductions are: every algorithm with every codec, from 2 to 64 ranks, against exact sums.

python -m benchmarks.errors [--codec bounded:8 ...] [--ranks 4 ...] [--data hdc] [--markdown] [--json FILE]

The schedules and codecs of real calls, in one process without a network; and all ranks must end with the same bits.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from benchmarks import harness, schedules
from benchmarks.schedules import EXACT, SAME_BITS, ReductionCases, allreduced
from softnic.bench import inputs
from softnic.measure.progress import as_measured
from softnic.measure.report import Column, MeasurementReport, Progress, figure

CASES = ReductionCases(
    (EXACT, "bounded:10", "inceptionn:10", "bfp:7", "truncate:16"), (2, 4, 8, 16, 32, 64), "gaussian:0.01"
)


@dataclass(frozen=True)
class ErrorRow:
    codec: str
    ranks: int
    algorithm: str
    max_error: float
    rms_error: float
    rms_sum: float
    """Of the exact sum, to hold the errors against."""


def run(cases: ReductionCases, progress: Progress) -> MeasurementReport[ErrorRow]:
    """Raises ValueError for names that are none, MeasurementError where ranks end with different bits."""
    most = max(cases.ranks)
    words = inputs.floats(cases.data, cases.count * most).reshape(most, cases.count)
    rows: list[ErrorRow] = []
    for name in cases.codecs:
        for size in cases.ranks:
            progress(f"{name}, {size} ranks")
            exact = words[:size].sum(axis=0, dtype=np.float64)
            for algorithm in cases.algorithms:
                error = allreduced(words[:size], algorithm, name) - exact
                row = ErrorRow(name, size, algorithm, float(np.abs(error).max()), _rms(error), _rms(exact))
                rows += as_measured([row], _columns(), progress)
    title = f"Errors of an all-reduce of {cases.count} floats a rank against the exact sum; {cases.data}"
    return ErrorReport("errors", title, _columns(), rows, asdict(cases), [SAME_BITS])


def _rms(values: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values * values)))


def _columns() -> list[Column[ErrorRow]]:
    return [
        Column("codec", lambda row: row.codec, left=True),
        Column("ranks", lambda row: str(row.ranks)),
        Column("algorithm", lambda row: row.algorithm, left=True),
        Column("max error", lambda row: figure(row.max_error, ".2e")),
        Column("rms error", lambda row: figure(row.rms_error, ".2e")),
        Column("of the sum's rms", lambda row: figure(100 * row.rms_error / row.rms_sum, ".3g") + " %"),
    ]


class ErrorReport(MeasurementReport[ErrorRow]):
    def markdown(self) -> str:
        """Return one row per codec and number of ranks, with the rms and largest error of each algorithm."""
        algorithms = list(dict.fromkeys(row.algorithm for row in self.rows))
        lines = [f"| codec | ranks | {' | '.join(algorithms)} |", f"|---|---|{'---|' * len(algorithms)}"]
        for (codec, ranks), found in schedules.by_case(self.rows).items():
            cells = [f"{row.rms_error:.1e}, {row.max_error:.1e}" for [row] in found.values()]
            lines.append(f"| {codec} | {ranks} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    schedules.add_options(parser, CASES)
    parser.add_argument("--data", default=CASES.data, help=f"as of `softnic bench` ({CASES.data})")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[ErrorRow]]:
    return [run(schedules.cases_of(given, CASES), progress)]


if __name__ == "__main__":
    sys.exit(harness.main("errors", __doc__, measured, add_options))
