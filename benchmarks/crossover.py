"""From what size on which algorithm is quickest, over real NICs.

python -m benchmarks.crossover [-n 4] [--size 65536 ...] [--algorithm tree ...] [--rate none] [--markdown] [--json FILE]

All-reduces of 256 bytes to 16 MiB a rank, exact and compressed, all algorithms by turns. A few minutes.
softnic/collectives/schedule/choice.py has its thresholds from this benchmark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from benchmarks import harness
from softnic.bench import allreduce
from softnic.bench.rank import EXACT, ORDINARY, REGISTERED
from softnic.measure.progress import inside
from softnic.measure.report import Column, MeasurementReport, Progress, figure, links
from softnic.units import medians_of, text_bytes


@dataclass(frozen=True)
class CrossoverSettings:
    sizes: tuple[int, ...] = tuple(4**power for power in range(4, 13))
    """Bytes a rank: 256 to 16 Mi."""
    algorithms: tuple[str, ...] = ("ring", "direct", "tree", "hierarchical", "wa")
    codec: str = "bounded:10"
    nodes: int = 4
    rounds: int = 15
    memory: str = ORDINARY
    link: Mapping[str, str] = field(default_factory=lambda: dict(allreduce.LINK))


@dataclass(frozen=True)
class SizeRow:
    size: int
    case: str
    seconds: Mapping[str, float]
    """By algorithm: of one call."""
    cpu_s: Mapping[str, float]
    """Of all daemons and ranks."""

    @property
    def quickest(self) -> str:
        return min(self.seconds, key=lambda name: self.seconds[name])


def run(settings: CrossoverSettings, progress: Progress) -> MeasurementReport[SizeRow]:
    """Raises MeasurementError, ClusterError."""
    rows = []
    for size in settings.sizes:
        text = text_bytes(size)
        single = allreduce.AllreduceSettings(
            (settings.codec,),
            settings.nodes,
            size / 1e6,
            settings.rounds,
            memory=(settings.memory,),
            algorithms=settings.algorithms,
            link=settings.link,
        )
        found = allreduce.run(single, inside(progress, text)).rows
        rows += [
            SizeRow(
                size,
                case,
                {row.algorithm: row.seconds for row in found if row.case == case},
                {row.algorithm: row.daemons_cpu_s + row.ranks_cpu_s for row in found if row.case == case},
            )
            for case in (EXACT, settings.codec)
        ]
    what = f"All-reduce at {settings.nodes} ranks, milliseconds by algorithm"
    title = f"{what}; links: {links(settings.link)}; {medians_of(settings.rounds, 'call')}"
    return MeasurementReport("crossover", title, _columns(settings), rows, asdict(settings))


def _columns(settings: CrossoverSettings) -> list[Column[SizeRow]]:
    def cell(name: str) -> Column[SizeRow]:
        return Column(name, lambda row: figure(row.seconds[name] * 1000, ".3g"))

    return [
        Column("buffer", lambda row: text_bytes(row.size)),
        Column("floats", lambda row: row.case, left=True),
        *map(cell, settings.algorithms),
        Column("quickest", lambda row: row.quickest, left=True),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    default = CrossoverSettings()
    parser.add_argument("-n", "--nodes", type=int, default=default.nodes, help=f"ranks ({default.nodes})")
    parser.add_argument(
        "--size", type=int, action="append", help="bytes a rank; may be repeated (256, 1024, ... 16 Mi)"
    )
    parser.add_argument("--algorithm", action="append", help=f"may be repeated ({', '.join(default.algorithms)})")
    parser.add_argument("--codec", default=default.codec, help=f"({default.codec})")
    parser.add_argument("--memory", choices=[ORDINARY, REGISTERED], default=default.memory, help=f"({default.memory})")
    harness.add_rounds(parser, default.rounds)
    parser.add_argument(
        "--rate", default=allreduce.LINK["rate"], help=f"of the links, or none ({allreduce.LINK['rate']})"
    )


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[SizeRow]]:
    default = CrossoverSettings()
    settings = CrossoverSettings(
        tuple(given.size or default.sizes),
        tuple(given.algorithm or default.algorithms),
        given.codec,
        given.nodes,
        given.rounds,
        given.memory,
        {} if given.rate == "none" else {**allreduce.LINK, "rate": given.rate},
    )
    return [run(settings, progress)]


if __name__ == "__main__":
    sys.exit(harness.main("crossover", __doc__, measured, add_options))
