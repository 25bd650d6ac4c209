"""Time, CPU time and memory: what is measured, one way for all benchmarks."""

from __future__ import annotations

import os
import re
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

Work = Callable[[], object]
Clock = Callable[[], float]

ONE_CORE: Clock = time.thread_time
"""CPU time of the thread that asks."""

TICK_S = 0.01
"""Of CPU time, where a kernel counts it in ticks: what took less may have taken none."""
SHORTEST_PIECE = 16
"""A measured piece takes at least this part of its slice."""


def seconds_a_call(work: Work, slice_s: float, clock: Clock) -> float:
    """Of the quickest of as many pieces as fit into `slice_s`, at least one: what a call costs when nobody disturbs.

    A piece is one call, or twice as many each time that a piece was too short to be told: where the kernel counts CPU
    time by ticks (10 ms and no less with some), many a call takes none."""
    best, calls, until = float("inf"), 1, clock() + slice_s
    while True:
        began = clock()
        for _ in range(calls):
            work()
        ended = clock()
        if ended - began > slice_s / SHORTEST_PIECE:
            best = min(best, (ended - began) / calls)
        else:
            calls *= 2
        if ended >= until and best < float("inf"):
            return best


def alternate(
    works: Mapping[str, Work], rounds: int, slice_s: float, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds a call of each, `rounds` times in turn, so that what disturbs one round disturbs all of it. Every work
    is called once before, unmeasured. For work that is done in this thread alone, `ONE_CORE` is the clock that others
    on the same core do not move."""
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(seconds_a_call(work, slice_s, clock))
    return taken


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median over rounds of the quotient of what was measured in the same round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0..1) of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def own_cpu_s() -> float:
    """User and system time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of living processes, in ticks of 10 ms (proc(5))."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """Busy time of the whole machine, in ticks of 10 ms: with what the kernel does for no process in particular."""
    user, nice, system, _idle, _waiting, interrupts, softirqs, *_ = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupts + softirqs) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: Iterable[int], *, peak: bool = False) -> int:
    """Memory that living processes hold now, or held at most since `forget_peak`."""
    name = "VmHWM" if peak else "VmRSS"
    total = 0
    for pid in pids:
        found = re.search(rf"^{name}:\s+([0-9]+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        total += int(found[1]) * 1024 if found else 0
    return total


def forget_peak(pids: Iterable[int]) -> None:
    """Lets the peak of `resident_bytes` start anew from what is held now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
