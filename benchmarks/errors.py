"""How wrong reductions are: every algorithm with every codec, from 2 to 64 ranks, against exact sums.

python -m benchmarks.errors [--codec bounded:8 ...] [--ranks 4 ...] [--data hdc] [--markdown] [--json FILE]

The schedules and codecs of real calls, in one process without a network; and all ranks must end with the same bits.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from benchmarks.schedules import execute
from softnic import codecs
from softnic.bench import inputs
from softnic.collectives.schedule import ALGORITHMS
from softnic.experiments.data import Floats
from softnic.experiments.report import Column, MeasurementError, MeasurementReport, Progress, figure

EXACT = "exact"
"""float32 sums without a codec: what rounding to float32 does by itself."""


@dataclass(frozen=True)
class ErrorSettings:
    codecs: tuple[str, ...] = (EXACT, "bounded:10", "inceptionn:10", "bfp:7", "truncate:16")
    algorithms: tuple[str, ...] = ALGORITHMS
    ranks: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    data: str = "gaussian:0.01"
    count: int = 1 << 16
    """Floats a rank."""


@dataclass(frozen=True)
class ErrorRow:
    codec: str
    ranks: int
    algorithm: str
    max_error: float
    rms_error: float
    rms_sum: float
    """Of the exact sum, to hold the errors against."""


def run(settings: ErrorSettings, progress: Progress) -> MeasurementReport[ErrorRow]:
    """Raises ValueError for names that are none, MeasurementError where ranks end with different bits."""
    most = max(settings.ranks)
    words = inputs.floats(settings.data, settings.count * most).reshape(most, settings.count)
    rows = []
    for name in settings.codecs:
        for size in settings.ranks:
            progress(f"{name}, {size} ranks")
            exact = words[:size].sum(axis=0, dtype=np.float64)
            rows += [_measured(words[:size], exact, name, algorithm) for algorithm in settings.algorithms]
    title = f"Errors of an all-reduce of {settings.count} floats a rank against the exact sum; {settings.data}"
    return ErrorReport(
        "errors", title, _columns(), rows, asdict(settings), ["All ranks ended with the same bits, in every row."]
    )


def _measured(words: Floats, exact: npt.NDArray[np.float64], name: str, algorithm: str) -> ErrorRow:
    results = execute(list(words), algorithm, None if name == EXACT else codecs.get(name))
    if any(result.tobytes() != results[0].tobytes() for result in results):
        raise MeasurementError(
            f"{algorithm} with {name} and {len(words)} ranks ended with different bits; this is a bug"
        )
    error = results[0] - exact
    return ErrorRow(name, len(words), algorithm, float(np.abs(error).max()), _rms(error), _rms(exact))


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
        cases: dict[tuple[str, int], list[str]] = defaultdict(list)
        for row in self.rows:
            cases[row.codec, row.ranks].append(f"{row.rms_error:.1e}, {row.max_error:.1e}")
        lines += [f"| {codec} | {ranks} | {' | '.join(cells)} |" for (codec, ranks), cells in cases.items()]
        return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    default = ErrorSettings()
    parser.add_argument("--codec", action="append", help=f"or exact; may be repeated ({', '.join(default.codecs)})")
    parser.add_argument("--algorithm", action="append", help=f"may be repeated ({', '.join(default.algorithms)})")
    ranks = ", ".join(map(str, default.ranks))
    parser.add_argument("--ranks", type=int, action="append", help=f"may be repeated ({ranks})")
    parser.add_argument("--data", default=default.data, help=f"as of `softnic bench` ({default.data})")
    parser.add_argument("--count", type=int, default=default.count, help=f"floats a rank ({default.count})")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[ErrorRow]]:
    default = ErrorSettings()
    settings = ErrorSettings(
        tuple(given.codec or default.codecs),
        tuple(given.algorithm or default.algorithms),
        tuple(given.ranks or default.ranks),
        given.data,
        given.count,
    )
    return [run(settings, progress)]


if __name__ == "__main__":
    sys.exit(harness.main("errors", __doc__, measured, add_options))
