"""All-reduce over NICs on emulated links, exact and compressed, by the algorithms that are asked for.

The limit is the link: the compressed bytes that the busiest NIC had to send, by its own counters, at the link's rate.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from softnic.bench.rank import BLOCKING, CHECK, EXACT, NONBLOCKING, ORDINARY, POSTED, REGISTERED
from softnic.cluster.cluster import Cluster
from softnic.experiments.traffic import NicTraffic
from softnic.measure import timing
from softnic.measure.child_process import ChildProcesses, rank_processes
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns, links, share
from softnic.units import medians_of, rate_bps, text_time

RANK = "softnic.bench.rank"
Case = tuple[str, str]
"""What a rank is ordered (rank.py): a codec, an algorithm, a blocking call or not; and the kind of memory."""
LINK = {"rate": "1gbit", "delay": "50us"}


@dataclass(frozen=True)
class AllreduceSettings:
    codecs: tuple[str, ...] = ("rht:4", "bounded:10")
    nodes: int = 4
    megabytes: float = 100
    """Of float32, a rank."""
    rounds: int = 5
    data: str = "gaussian:0.01"
    memory: tuple[str, ...] = (ORDINARY, REGISTERED)
    """Where the ranks' floats lie."""
    algorithms: tuple[str, ...] = ("",)
    """Empty: what the size and the ranks make it."""
    calls: tuple[str, ...] = (BLOCKING,)
    """BLOCKING, NONBLOCKING."""
    link: Mapping[str, str] = field(default_factory=lambda: dict(LINK))
    poll: str | None = None
    """For how long NICs poll before they sleep; None: not at all."""
    queues: int | Literal["auto"] = 1
    """Of each NIC."""


@dataclass(frozen=True)
class Call:
    """One all-reduce over all ranks."""

    seconds: float
    """Of the slowest rank."""
    payload: int
    """Of the NIC that sent most."""
    wire: int
    daemons_cpu_s: float
    """Of all daemons together."""
    ranks_cpu_s: float


@dataclass(frozen=True)
class AllreduceRow:
    case: str = column("floats")
    call: str = column("call")
    """BLOCKING or NONBLOCKING."""
    algorithm: str = column("algorithm")
    memory: str = column("memory")
    seconds: float = column("seconds", ".4f")
    limit_s: float | None = column("bytes / rate", ".4f")
    """The payload that the busiest NIC sent, at the link's rate. None: no rate is emulated."""
    of_limit: float | None = column("times that")
    """Seconds, as a multiple of that."""
    link_busy: float | None = column("link busy", share)
    """The part of the time in which that link was sending frames."""
    ratio: float = column("ratio")
    """Payload of the exact all-reduce by the same algorithm to this one's."""
    speed_up: float = column("speed-up")
    """Against the first of all, an exact one, in the same round."""
    daemons_cpu_s: float = column("CPU s, daemons")
    ranks_cpu_s: float = column("ranks")
    cores_s: float = column("CPU / cores", ".4f")
    """CPU time of daemons and ranks, spread evenly over this machine's cores: what they need on any links."""
    max_error: float = column("max error", ".2g")


def run(settings: AllreduceSettings, progress: Progress = lambda _what: None) -> MeasurementReport[AllreduceRow]:
    """Raises MeasurementError, ClusterError."""
    names = [
        f"{POSTED if call == NONBLOCKING else ''}{case}/{name}".rstrip("/")
        for call in settings.calls
        for name in settings.algorithms
        for case in (EXACT, *settings.codecs)
    ]
    cases = [(name, memory) for memory in settings.memory for name in names]
    calls: dict[Case, list[Call]] = {case: [] for case in cases}
    errors: dict[Case, float] = {}
    options = ("--megabytes", str(settings.megabytes), "--data", settings.data)
    progress("nothing yet: ranks start")
    nics: dict[str, Any] = {"poll": settings.poll, "queues": settings.queues, **settings.link}
    with (
        Cluster(nodes=settings.nodes, **nics) as cluster,
        rank_processes(cluster.spawn, settings.nodes, RANK, *options) as ranks,
    ):
        for number in range(-1, settings.rounds):
            for case in cases:
                what = f"{' in '.join(case)} memory, round {number + 1} of {settings.rounds}"
                progress(what)
                if number < 0:  # the first of each fills caches and windows
                    errors[case] = checked(ranks, case)
                else:
                    calls[case].append(one_call(cluster, ranks, case))
                    progress(Measured(f"{what}: {text_time(calls[case][-1].seconds)}"))
    rate = rate_bps(settings.link["rate"]) if "rate" in settings.link else None
    rows = [_row(case, calls, rate, errors[case]) for case in cases]
    return MeasurementReport(
        "allreduce", _title(settings), columns(AllreduceRow), rows, asdict(settings), _notes(settings)
    )


def checked(ranks: ChildProcesses, case: Case) -> float:
    """The largest error of an all-reduce, of which every rank has to have the same result. Raises MeasurementError."""
    reported = ranks.order(*case, CHECK)
    if len({each["digest"] for each in reported}) != 1:
        raise MeasurementError(f"{case[0]}: the ranks ended with different bits; this is a bug")
    return max(float(each["max_error"]) for each in reported)


def one_call(cluster: Cluster, ranks: ChildProcesses, case: Case) -> Call:
    daemons = [nic.pid for nic in cluster.nics]
    sent = [NicTraffic.of_node(cluster, node) for node in range(cluster.nodes)]
    cpu_s = timing.cpu_s(daemons)
    reported = ranks.order(*case)
    now = [NicTraffic.of_node(cluster, node) for node in range(cluster.nodes)]
    return Call(
        seconds=max(each["seconds"] for each in reported),
        payload=max(after.payload - before.payload for before, after in zip(sent, now, strict=True)),
        wire=max(after.wire - before.wire for before, after in zip(sent, now, strict=True)),
        daemons_cpu_s=timing.cpu_s(daemons) - cpu_s,
        ranks_cpu_s=sum(each["cpu_s"] for each in reported),
    )


def _row(case: Case, calls: Mapping[Case, list[Call]], rate: float | None, error: float) -> AllreduceRow:
    name = case[0].removeprefix(POSTED)
    posted, (codec, slash, algorithm) = case[0].removesuffix(name), name.partition("/")
    own, exact, first = calls[case], calls[posted + EXACT + slash + algorithm, case[1]], next(iter(calls.values()))
    seconds = [call.seconds for call in own]
    limits = [call.payload * 8 / rate for call in own] if rate else None
    return AllreduceRow(
        case=codec,
        call=NONBLOCKING if posted else BLOCKING,
        algorithm=algorithm,
        memory=case[1],
        seconds=timing.median(seconds),
        limit_s=timing.median(limits) if limits else None,
        of_limit=timing.ratio(seconds, limits) if limits else None,
        link_busy=timing.median(call.wire * 8 / rate / call.seconds for call in own) if rate else None,
        ratio=timing.ratio([call.payload for call in exact], [call.payload for call in own]),
        speed_up=timing.ratio([call.seconds for call in first], seconds),
        daemons_cpu_s=timing.median(call.daemons_cpu_s for call in own),
        ranks_cpu_s=timing.median(call.ranks_cpu_s for call in own),
        cores_s=timing.median(call.daemons_cpu_s + call.ranks_cpu_s for call in own) / len(os.sched_getaffinity(0)),
        max_error=error,
    )


def _title(settings: AllreduceSettings) -> str:
    what = f"All-reduce of {settings.megabytes:g} MB a rank, {settings.nodes} ranks"
    over = links(settings.link, settings.poll, settings.queues)
    return f"{what}; links: {over}. {medians_of(settings.rounds, 'call').capitalize()}"


def _notes(settings: AllreduceSettings) -> list[str]:
    return [
        f"Floats: {settings.data}. bytes / rate: the payload that the busiest NIC sent, by its counters, at the link's "
        "rate; headers and acknowledgements are not in it. CPU is of all daemons and of all ranks, for one call. "
        "Registered memory: softnic.empty, which the NIC maps. Blocking: Allreduce; nonblocking: Iallreduce and Wait.",
        f"{settings.nodes} NICs and {settings.nodes} ranks share the cores of this machine. CPU / cores: a lower bound "
        "of the time on any links; where it exceeds bytes / rate, the CPU is the limit.",
    ]
