"""All-reduces between sites: Gloo's over the kernel's TCP, and softnic's, over the same emulated paths.

The time of a call is its slowest rank's. A row that takes longer than the limit says so: its ranks are ended, and what
is compared with it is faster by that much at least.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.wan.lab import SiteHosts, SiteNics, SitePlan
from softnic import codecs
from softnic.bench import rank
from softnic.bench.rank import CHECK, EXACT, ORDINARY, REGISTERED
from softnic.measure import timing
from softnic.measure.child_process import ChildProcesses, SilenceError, rank_processes
from softnic.measure.report import MeasurementError, Progress, column

SOFTNIC = "softnic"
GLOO = "Gloo, "
"""And the congestion control of the kernel's TCP."""
DATA = "gaussian:0.01"
START_S = 180.0
"""Limit of ranks' start: eight interpreters that import torch, on few cores, and connect over lossy paths."""


@dataclass(frozen=True)
class SumRow:
    paths: str = column("paths")
    megabytes: float = column("MB", "g")
    who: str = column("all-reduce")
    what: str = column("floats")
    seconds: float | None = column("seconds", ".3g", default=None)
    """Median of the calls. None: `why` tells why not."""
    over_s: float | None = column("longer than, s", ".0f", default=None)
    """A call did not end within this time."""
    calls: int = column("calls", default=0)
    of_limit: float | None = column("times bytes / rate", ".3g", default=None)
    """Seconds, as a multiple of what the bytes take at the rates of the links (`SitePlan.limit_s`)."""
    than_cubic: float | None = column("faster than Gloo, cubic", ".3g", default=None)
    """Times as fast as Gloo exact over the kernel's CUBIC; at least that, where Gloo took longer than the limit."""
    than_bbr: float | None = column("bbr", ".3g", default=None)
    missed: int = column("frames missed", default=0)
    """Frames that the program between the hosts was too slow to take: the machine's losses, not the path's."""
    why: str = column("", default="")


@dataclass(frozen=True)
class SumCase:
    """Ranks that are measured with one size: theirs are the orders one after the other."""

    plan: SitePlan
    who: str
    megabytes: float
    rounds: int
    limit_s: float
    """Of one call; the calls of a row end when they have taken this long together."""


def congestion_controls() -> list[str]:
    """Return which of the kernel's are compared: those of CUBIC and BBR that it has."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return [name for name in ("cubic", "bbr") if name in available]


def measure(case: SumCase, orders: Sequence[str], progress: Progress) -> Iterator[SumRow]:
    """Yield a row for each order. Ranks that fail, or exceed the limit, are started anew for the next one."""
    with _carried(case) as (sites, start), ExitStack() as stack:
        ranks: ChildProcesses | None = None
        for what in orders:
            row = SumRow(case.plan.name, case.megabytes, case.who, what)
            text = f"{row.who} {what}, {case.megabytes:g} MB, {row.paths}"
            try:
                if ranks is None:
                    progress(f"{text}: ranks start")
                    ranks = stack.enter_context(start())
                yield _row(case, row, sites, replace(ranks, limit_s=case.limit_s), progress)
            except MeasurementError as error:
                started, ranks = ranks is not None, None
                stack.close()
                over = started and isinstance(error, SilenceError)
                yield replace(row, over_s=case.limit_s) if over else replace(row, why=f"failed: {error}")


def _row(case: SumCase, row: SumRow, sites: SiteHosts, ranks: ChildProcesses, progress: Progress) -> SumRow:
    memory = REGISTERED if case.who == SOFTNIC else ORDINARY
    text = f"{row.who} {row.what}, {case.megabytes:g} MB, {row.paths}"
    progress(f"{text}: to warm up")
    before = sites.counters()["missed"]
    if len({each["digest"] for each in ranks.order(row.what, memory, CHECK)}) != 1:
        raise MeasurementError("the ranks ended with different bits; this is a bug")
    seconds: list[float] = []
    while len(seconds) < case.rounds and sum(seconds) <= case.limit_s:
        progress(f"{text}: call {len(seconds) + 1} of {case.rounds}")
        seconds.append(max(each["seconds"] for each in ranks.order(row.what, memory)))
    median = timing.median(seconds)
    limit_s = case.plan.limit_s(encoded_bytes(row.what, case.megabytes))
    missed = sites.counters()["missed"] - before
    return replace(row, seconds=median, calls=len(seconds), of_limit=median / limit_s, missed=missed)


def encoded_bytes(what: str, megabytes: float) -> float:
    """Return how many bytes a codec makes of the floats of a rank."""
    if what == EXACT:
        return megabytes * 1e6
    words = rank.pattern(DATA, 1 << 16)
    return megabytes * 1e6 * len(codecs.get(what).encode(words)) / words.nbytes


@contextmanager
def _carried(case: SumCase) -> Iterator[tuple[SiteHosts, Any]]:
    """Yield the hosts, with NICs or the kernel's devices, and what starts the ranks."""
    options = ("--megabytes", str(case.megabytes), "--data", DATA)
    size = case.plan.size
    with SiteHosts(case.plan) as sites, ExitStack() as stack:
        if case.who == SOFTNIC:
            nics = stack.enter_context(SiteNics(sites))
            yield sites, lambda: rank_processes(nics.spawn, size, "softnic.bench.rank", *options, limit_s=START_S)
            return
        sites.use_kernel(case.who.removeprefix(GLOO))
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        number = iter(range(1000))

        def start() -> Any:
            met = ("--master", f"file://{directory}/store{next(number)}")
            module = "benchmarks.peers.gloo_rank"
            return rank_processes(sites.spawn, size, module, *options, *met, numbered=True, limit_s=START_S)

        yield sites, start


def compared(rows: Sequence[SumRow]) -> list[SumRow]:
    """Return the same rows with how many times as fast as Gloo each is, on the same paths with as many bytes."""

    def beside(row: SumRow, congestion: str) -> float | None:
        for each in rows:
            same = (each.paths, each.megabytes, each.what) == (row.paths, row.megabytes, EXACT)
            if same and each.who == GLOO + congestion and row.seconds and (taken := each.seconds or each.over_s):
                return taken / row.seconds
        return None

    return [replace(row, than_cubic=beside(row, "cubic"), than_bbr=beside(row, "bbr")) for row in rows]
