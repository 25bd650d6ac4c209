"""How wrong reductions are: every algorithm with every codec against the exact sum, as the ranks grow in number.

No network: the schedules that ranks run, over the codecs that NICs have, in one process (`execute`). What a rank
receives is decode(encode(x)) of what was sent, whole blocks at a time, and so the bits are those of a real call.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.bench import inputs
from softnic.codecs import Codec
from softnic.collectives.operations import SUM, Op
from softnic.collectives.schedule import ALGORITHMS, Send, blocks, plan
from softnic.comm.collective import Work
from softnic.experiments.data import Floats
from softnic.experiments.report import Column, MeasurementError, Progress, Report, figure

EXACT = "exact"
"""float32 sums without a codec: what rounding to float32 does by itself."""


@dataclass(frozen=True)
class Plan:
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


def execute(
    contributions: Sequence[Floats], algorithm: str, codec: Codec | None, op: Op = SUM, collective: str = "allreduce"
) -> list[Floats]:
    """Return each rank's result of a reduction. Raises MeasurementError if the ranks deadlock."""
    size = len(contributions)
    cuts = blocks(collective, algorithm, contributions[0].size, size)
    finish = Work((), (), op, codec).finish(size)
    results = [floats.copy() for floats in contributions]
    schedules = [deque(plan(collective, algorithm, rank, size)) for rank in range(size)]
    wires: dict[tuple[int, int], deque[Floats]] = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(schedules):
            while steps and (isinstance(steps[0], Send) or wires[steps[0].peer, rank]):
                step = steps.popleft()
                block = results[rank][cuts[step.block]]
                moved = True
                if isinstance(step, Send):
                    wires[rank, step.peer].append(block.copy() if codec is None else codec.roundtrip(block))
                    continue
                come = wires[step.peer, rank].popleft()
                block[:] = op.arrays(come, block) if step.combine else come
                if step.last and finish is not None:
                    finish(block)
    if any(schedules):
        raise MeasurementError(f"{algorithm} with {size} ranks does not come to an end; this is a bug")
    return results


def run(plan: Plan, progress: Progress = lambda _what: None) -> Report[ErrorRow]:
    """Raises ValueError for names that are none, MeasurementError where ranks end with different bits."""
    most = max(plan.ranks)
    words = inputs.floats(plan.data, plan.count * most).reshape(most, plan.count)
    rows = []
    for name in plan.codecs:
        for size in plan.ranks:
            progress(f"{name}, {size} ranks")
            exact = words[:size].sum(axis=0, dtype=np.float64)
            rows += [_measured(words[:size], exact, name, algorithm) for algorithm in plan.algorithms]
    settings = {"data": plan.data, "count": plan.count}
    title = f"Errors of an all-reduce of {plan.count} floats a rank against the exact sum; {plan.data}"
    return Report("errors", title, _columns(), rows, settings, ["All ranks ended with the same bits, in every row."])


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


def markdown(report: Report[ErrorRow]) -> str:
    """The tables as docs/algorithms.md has them: by codec and ranks, the error of each algorithm, rms and largest."""
    algorithms = list(dict.fromkeys(row.algorithm for row in report.rows))
    lines = [f"| codec | ranks | {' | '.join(algorithms)} |", f"|---|---|{'---|' * len(algorithms)}"]
    by_case: dict[tuple[str, int], list[ErrorRow]] = defaultdict(list)
    for row in report.rows:
        by_case[row.codec, row.ranks].append(row)
    text: Callable[[ErrorRow], str] = lambda row: f"{row.rms_error:.1e}, {row.max_error:.1e}"  # noqa: E731
    for (codec, ranks), rows in by_case.items():
        lines.append(f"| {codec} | {ranks} | {' | '.join(map(text, rows))} |")
    return "\n".join(lines) + "\n"
