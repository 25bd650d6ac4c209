"""NICs with one queue beside NICs with several: all-reduces at high rates, streams at once, and what idle queues cost.

python -m benchmarks.queues [--queues N] [--rounds 3] [--megabytes 100] [--json FILE]

Each case runs with one queue and with N in the same round. On a machine with fewer cores than ranks and queues, N
queues share what one has: the figure is then what they cost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import harness
from softnic.bench import allreduce
from softnic.bench.rank import EXACT, REGISTERED
from softnic.bench.stream import StreamRoute, one_stream
from softnic.bench.stream_endpoints import CHUNK_BYTES
from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import node_ip
from softnic.ipc.control import MOST_QUEUES
from softnic.measure import timing
from softnic.measure.child_process import rank_processes
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.units import rate_bps

RANKS = 4
CASES = [(rate, floats) for rate in ("10gbit", "25gbit") for floats in (EXACT, "rht:4", "bounded:10")]
STREAMS = (1, 8)
IDLE_S = 2.0


@dataclass(frozen=True)
class Row:
    what: str = column("what")
    queues: int = column("queues")
    seconds: float | None = column("seconds", ".4f", default=None)
    """Median of a call, of the slowest rank."""
    of_limit: float | None = column("times bytes / rate", default=None)
    mb_per_s: float | None = column("MB/s", ".0f", default=None)
    """Of all streams together."""
    daemons_cpu_s: float | None = column("CPU s, daemons", ".3f", default=None)
    resident_mb: float | None = column("MB a NIC", ".1f", default=None)
    beside_one: float | None = column("speed beside one queue", default=None)


def measure(options: argparse.Namespace, progress: Progress) -> Sequence[MeasurementReport[Any]]:
    counts = (1, options.queues)
    rows: list[Row] = []
    for rate, floats in CASES:
        rows += as_measured(_allreduce(options, counts, rate, floats), columns(Row), progress)
    for number in STREAMS:
        rows += as_measured(_streams(options, counts, number), columns(Row), progress)
    rows += as_measured(map(_idle, counts), columns(Row), progress)
    title = f"NICs with 1 and {options.queues} queues, {RANKS} ranks or 2 nodes, {os.cpu_count()} cores"
    return [MeasurementReport("queues", title, columns(Row), rows, vars(options) | {"json": None})]


def _allreduce(options: argparse.Namespace, counts: Sequence[int], rate: str, floats: str) -> list[Row]:
    """Return the rows of an all-reduce over registered memory, whose rounds go by turns over the numbers of queues."""
    case = floats, REGISTERED
    calls: dict[int, list[allreduce.Call]] = {queues: [] for queues in counts}
    with contextlib.ExitStack() as stack:
        started = {}
        for queues in counts:
            cluster = stack.enter_context(Cluster(nodes=RANKS, rate=rate, delay="50us", queues=queues))
            arguments = ("--megabytes", str(options.megabytes), "--data", "gaussian:0.01")
            started[queues] = (
                cluster,
                stack.enter_context(rank_processes(cluster.spawn, RANKS, allreduce.RANK, *arguments)),
            )
            allreduce.checked(started[queues][1], case)
        for _ in range(options.rounds):
            for queues, (cluster, ranks) in started.items():
                calls[queues].append(allreduce.one_call(cluster, ranks, case))
    bits = rate_bps(rate)
    return [
        Row(
            f"all-reduce, {floats}, {rate}",
            queues,
            seconds=timing.median(call.seconds for call in own),
            of_limit=timing.ratio([call.seconds for call in own], [call.payload * 8 / bits for call in own]),
            daemons_cpu_s=timing.median(call.daemons_cpu_s for call in own),
            beside_one=timing.ratio([call.seconds for call in calls[1]], [call.seconds for call in own]),
        )
        for queues, own in calls.items()
    ]


def _streams(options: argparse.Namespace, counts: Sequence[int], number: int) -> list[Row]:
    """Return the rows of untagged streams at once."""
    rates: dict[int, list[float]] = {queues: [] for queues in counts}
    cpu: dict[int, list[float]] = {queues: [] for queues in counts}
    size = int(options.megabytes * 10**6 * 2) // CHUNK_BYTES * CHUNK_BYTES
    for _ in range(options.rounds):
        for queues in counts:
            with Cluster(nodes=2, queues=queues) as cluster:
                daemons = [nic.pid for nic in cluster.nics]
                before = timing.cpu_s(daemons)
                stream = partial(one_stream, cluster.spawn, size, "gaussian:0.01", StreamRoute(node_ip(1)))
                began = time.monotonic()
                found = _at_once([stream] * number)
                taken = max(found, default=0.0) if number == 1 else time.monotonic() - began
                rates[queues].append(number * size / taken / 1e6)
                cpu[queues].append(timing.cpu_s(daemons) - before)
    return [
        Row(
            f"{number} stream{'s at once' * (number > 1)}",
            queues,
            mb_per_s=timing.median(rates[queues]),
            daemons_cpu_s=timing.median(cpu[queues]),
            beside_one=timing.ratio(rates[queues], rates[1]),
        )
        for queues in counts
    ]


def _at_once(streams: Sequence[Callable[[], Any]]) -> list[float]:
    """Run streams side by side. Return the seconds that each took."""
    seconds: list[float] = []
    threads = [threading.Thread(target=lambda stream=stream: seconds.append(stream().seconds)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def _idle(queues: int) -> Row:
    """Return the row of NICs that nobody uses."""
    with Cluster(nodes=2, queues=queues) as cluster:
        daemons = [nic.pid for nic in cluster.nics]
        time.sleep(IDLE_S)
        before = timing.cpu_s(daemons)
        time.sleep(IDLE_S)
        used = (timing.cpu_s(daemons) - before) / IDLE_S
        return Row("idle, CPU s a second", queues, daemons_cpu_s=used, resident_mb=timing.resident_bytes(daemons) / 2e6)


def _options(parser: argparse.ArgumentParser) -> None:
    spare = min(MOST_QUEUES, max(2, (os.cpu_count() or 1) // RANKS))
    parser.add_argument("--queues", type=int, default=spare, help=f"queues beside one ({spare})")
    parser.add_argument("--megabytes", type=float, default=100, help="of float32 a rank, half of a stream (100)")
    harness.add_rounds(parser, 3)


if __name__ == "__main__":
    raise SystemExit(harness.main("queues", __doc__, measure, _options))
