"""How much a program's own computing slows down while its floats are exchanged.

All ranks compute all the time, alone and then for as long as an all-reduce takes: a blocking call of a thread of each
rank, or a nonblocking one. What computing loses then, in seconds of a core, stands beside the CPU time of the NICs'
daemons: a program that has nothing to do for its exchange loses no more than these take from it, on a machine whose
cores they share.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from softnic.bench.overlap_rank import ALONE
from softnic.bench.rank import BLOCKING, EXACT, NONBLOCKING
from softnic.cluster.cluster import Cluster
from softnic.measure import timing
from softnic.measure.child_process import ChildProcesses, rank_processes
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementReport, Progress, column, columns, links, share
from softnic.units import medians_of

RANK = "softnic.bench.overlap_rank"
LINK = {"rate": "1gbit", "delay": "50us"}
ALONE_S = 1.0
Case = tuple[str, str]
"""BLOCKING or NONBLOCKING, and what: `exact` or a codec."""


@dataclass(frozen=True)
class OverlapSettings:
    codecs: tuple[str, ...] = ("rht:4",)
    nodes: int = 2
    megabytes: float = 100
    """Of float32, a rank."""
    rounds: int = 5
    data: str = "gaussian:0.01"
    link: Mapping[str, str] = field(default_factory=lambda: dict(LINK))


@dataclass(frozen=True)
class Exchange:
    """One all-reduce, beside which all ranks computed."""

    seconds: float
    """Of the slowest rank."""
    slow_down: float
    """The part of its speed alone that computing lost, mean of all ranks."""
    lost_s: float
    """Seconds of a core that computing lost, all ranks together."""
    ranks_cpu_s: float
    """Of the ranks' own CPU time, what did not go into computing."""
    daemons_cpu_s: float


@dataclass(frozen=True)
class OverlapRow:
    call: str = column("call")
    """BLOCKING: of a thread of each rank; NONBLOCKING."""
    case: str = column("floats")
    seconds: float = column("seconds", ".3f")
    slow_down: float = column("slower by", share)
    lost_s: float = column("core s lost")
    ranks_cpu_s: float = column("CPU s, ranks")
    daemons_cpu_s: float = column("daemons")
    of_daemons: float = column("lost / daemons")
    """What computing lost, as a multiple of what the daemons took."""


def run(settings: OverlapSettings, progress: Progress = lambda _what: None) -> MeasurementReport[OverlapRow]:
    """Raises MeasurementError, ClusterError."""
    cases = [(call, what) for call in (BLOCKING, NONBLOCKING) for what in (EXACT, *settings.codecs)]
    found: dict[Case, list[Exchange]] = {case: [] for case in cases}
    options = ("--megabytes", str(settings.megabytes), "--data", settings.data)
    progress("nothing yet: ranks start")
    with (
        Cluster(nodes=settings.nodes, **settings.link) as cluster,  # type: ignore[arg-type]
        rank_processes(cluster.spawn, settings.nodes, RANK, *options) as ranks,
    ):
        for number in range(-1, settings.rounds):
            for case in cases:
                what = f"{' '.join(case)}, round {number + 1} of {settings.rounds}"
                progress(what)
                exchange = _one(cluster, ranks, case)
                if number >= 0:  # the first of each fills caches and windows
                    found[case].append(exchange)
                    progress(Measured(f"{what}: {exchange.seconds:.3f} s, slower by {share(exchange.slow_down)}"))
    rows = [_row(case, found[case]) for case in cases]
    return MeasurementReport("overlap", _title(settings), columns(OverlapRow), rows, asdict(settings), _notes(settings))


def _one(cluster: Cluster, ranks: ChildProcesses, case: Case) -> Exchange:
    before = ranks.order(ALONE, str(ALONE_S))
    daemons = [nic.pid for nic in cluster.nics]
    cpu_s = timing.cpu_s(daemons)
    reported = ranks.order(*case)
    cpu_s = timing.cpu_s(daemons) - cpu_s
    both = list(zip(reported, before, strict=True))
    lost = [1 - each["units"] / each["seconds"] / (alone["units"] / alone["seconds"]) for each, alone in both]
    cores = min(len(os.sched_getaffinity(0)), len(reported)) / len(reported)
    return Exchange(
        seconds=max(each["seconds"] for each in reported),
        slow_down=sum(lost) / len(lost),
        lost_s=sum(part * each["seconds"] * cores for part, each in zip(lost, reported, strict=True)),
        ranks_cpu_s=sum(each["cpu_s"] - each["units"] * alone["cpu_s"] / alone["units"] for each, alone in both),
        daemons_cpu_s=cpu_s,
    )


def _row(case: Case, exchanges: Sequence[Exchange]) -> OverlapRow:
    lost, cpu = ([getattr(each, name) for each in exchanges] for name in ("lost_s", "daemons_cpu_s"))
    return OverlapRow(
        call=case[0],
        case=case[1],
        seconds=timing.median(each.seconds for each in exchanges),
        slow_down=timing.median(each.slow_down for each in exchanges),
        lost_s=timing.median(lost),
        ranks_cpu_s=timing.median(each.ranks_cpu_s for each in exchanges),
        daemons_cpu_s=timing.median(cpu),
        of_daemons=timing.median(lost) / max(timing.median(cpu), timing.TICK_S),
    )


def _title(settings: OverlapSettings) -> str:
    what = f"Computing beside an all-reduce of {settings.megabytes:g} MB, {settings.nodes} ranks"
    return f"{what}; links: {links(settings.link)}. {medians_of(settings.rounds, 'call').capitalize()}"


def _notes(settings: OverlapSettings) -> list[str]:
    return [
        "Every rank computes on one core all the time; slower by: against its speed just before, without an exchange. "
        "core s lost: the same as seconds of a core, all ranks. CPU s, ranks: what they used beyond computing. lost / "
        "daemons: 1 is what sharing the cores with the daemons takes by itself; the tick of CPU times is 10 ms.",
        f"{settings.nodes} NICs and {settings.nodes} ranks share {len(os.sched_getaffinity(0))} cores. Blocking: a "
        "thread of each rank calls Allreduce; nonblocking: Iallreduce, and Test after every 200 us or so of work.",
    ]
