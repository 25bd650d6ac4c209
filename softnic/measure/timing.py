"""Time, CPU time and memory, measured in one way by all benchmarks."""

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
"""CPU time of the calling thread."""

TICK_S = 0.01
"""Resolution of CPU time where the kernel counts it in ticks."""
SHORTEST_PIECE = 16
"""A measured batch of calls takes at least this part (1/16) of its slice."""


def seconds_a_call(work: Work, slice_s: float, clock: Clock) -> float:
    """Return the seconds per call of the fastest of all batches of calls that fit into `slice_s`, at least one.

    A batch is one call, and twice as many each time a batch was too short to measure: a kernel that counts CPU time in
    ticks of 10 ms reports none for most single calls.
    """
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
    """Return each work's seconds per call, measured `rounds` times by turns, so that a disturbance affects all works.

    Every work is called once before, unmeasured. For work of this thread alone, use ONE_CORE, a clock that other
    threads on the same core do not advance.
    """
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
    """Return the median over rounds of the quotient of two measurements of the same round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that a share (0..1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def own_cpu_s() -> float:
    """Return the user and system time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_s(pids: Iterable[int]) -> float:
    """Return the user and system time of running processes, in ticks of 10 ms (proc(5))."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """Return the busy time of the whole machine, in ticks of 10 ms, with the kernel's own work."""
    user, nice, system, _idle, _waiting, interrupts, softirqs, *_ = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupts + softirqs) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: Iterable[int], *, peak: bool = False) -> int:
    """Return the memory that running processes hold, or the most they held since `forget_peak`."""
    name = "VmHWM" if peak else "VmRSS"
    total = 0
    for pid in pids:
        found = re.search(rf"^{name}:\s+([0-9]+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        total += int(found[1]) * 1024 if found else 0
    return total


def forget_peak(pids: Iterable[int]) -> None:
    """Reset the peak of `resident_bytes` to the memory held now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
