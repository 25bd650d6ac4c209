"""Schedules of collectives executed in one process, without a network: the bits of a real call.

Benchmarks of errors differ in what they compute from an all-reduce's result; what they have in common is here.
"""

from __future__ import annotations

import argparse
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from softnic import codecs
from softnic.codecs import Codec
from softnic.collectives.operations import SUM, ArrayOp
from softnic.collectives.schedule import ALGORITHMS, SendBlock, blocks, plan
from softnic.experiments.data import Floats
from softnic.measure.report import MeasurementError

EXACT = "exact"
"""In the place of a codec: float32 sums, whose error is that of rounding to float32."""
SAME_BITS = "All ranks ended with the same bits, in every row."


def execute(
    contributions: Sequence[Floats],
    algorithm: str,
    codec: Codec | None,
    op: ArrayOp = SUM,
    collective: str = "allreduce",
) -> list[Floats]:
    """Return each rank's result of a reduction. Raises MeasurementError if the ranks deadlock."""
    size = len(contributions)
    cuts = blocks(collective, algorithm, contributions[0].size, size)
    results = [floats.copy() for floats in contributions]
    schedules = [deque(plan(collective, algorithm, rank, size)) for rank in range(size)]
    wires: dict[tuple[int, int], deque[Floats]] = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(schedules):
            while steps and (isinstance(steps[0], SendBlock) or wires[steps[0].peer, rank]):
                step = steps.popleft()
                block = results[rank][cuts[step.block]]
                moved = True
                if isinstance(step, SendBlock):
                    wires[rank, step.peer].append(block.copy() if codec is None else codec.roundtrip(block))
                    continue
                come = wires[step.peer, rank].popleft()
                if step.combine:
                    op.combine(come, block, block)
                else:
                    block[:] = come
                if step.last:
                    op.finish(block, size)
                    if codec is not None and collective != "reduce_scatter":
                        codec.roundtrip(block, out=block)
    if any(schedules):
        raise MeasurementError(f"{algorithm} with {size} ranks does not come to an end; this is a bug")
    return results


def allreduced(words: Floats, algorithm: str, name: str) -> Floats:
    """Return the sum of the rows of `words`, one a rank. Raises MeasurementError if ranks end with different bits."""
    results = execute(list(words), algorithm, None if name == EXACT else codecs.get(name))
    if any(result.tobytes() != results[0].tobytes() for result in results):
        raise MeasurementError(
            f"{algorithm} with {name} and {len(words)} ranks ended with different bits; this is a bug"
        )
    return results[0]


@dataclass(frozen=True)
class ReductionCases:
    """Which all-reduces are executed: each of these with each other."""

    codecs: tuple[str, ...]
    ranks: tuple[int, ...]
    data: Any
    algorithms: tuple[str, ...] = ALGORITHMS
    count: int = 1 << 16
    """Floats a rank."""


Cases = TypeVar("Cases", bound=ReductionCases)
Row = TypeVar("Row")
"""Has `codec`, `ranks` and `algorithm`."""


def add_options(parser: argparse.ArgumentParser, default: ReductionCases) -> None:
    """Add the options of all cases, but --data."""
    for option, name, kind in (("codec", "codecs", str), ("algorithm", "algorithms", str), ("ranks", "ranks", int)):
        known = ", ".join(map(str, getattr(default, name)))
        parser.add_argument(f"--{option}", dest=name, type=kind, action="append", help=f"may be repeated ({known})")
    parser.add_argument("--count", type=int, default=default.count, help=f"floats a rank ({default.count})")


def cases_of(given: argparse.Namespace, default: Cases) -> Cases:
    """Return the cases that options name."""
    named = {field.name: getattr(given, field.name, None) for field in fields(default)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in named.items() if value
    }
    return replace(default, **values)


def by_case(rows: Iterable[Row]) -> dict[tuple[str, int], dict[str, list[Row]]]:
    """Return the rows of each codec and number of ranks, by algorithm."""
    found: dict[tuple[str, int], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    row: Any
    for row in rows:
        found[row.codec, row.ranks][row.algorithm].append(row)
    return found
