"""Clusters of 8 to 1,024 nodes in virtual time: start, connections and memory of a NIC, and all-reduces.

python -m benchmarks.scale --nodes 8 64 1024 --rate 10gbit --round-trip 1ms

Times and connections are the same on every machine. Memory is that of a simulated NIC after the first barrier: TCP,
NIC, link and collective engine, without a process. It is what the resident set grows by, in a process for each size.
Python's part is what tracemalloc counts in a second process, without arrays of 128 KiB and more, which the allocator
maps, and whose pages are in memory once they are used. The rest is C's, used pages of buffers, and the allocators' own.
The large all-reduce is simulated up to 32 nodes, on one buffer that all ranks share, and computed beyond. The formulas
are checked against the simulation there, and at more nodes with fewer bytes: with blocks as a thousand nodes have them.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks import harness
from softnic import units
from softnic.collectives.schedule import choose
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.model import scale

NODES = (8, 16, 32, 64, 128, 256, 512, 1024)
SIMULATED_NODES = 32
"""Up to as many nodes move all of LARGE_BYTES."""
MAPPED_BYTES = 128 << 10
"""Blocks of memory from here on are mapped (M_MMAP_THRESHOLD of glibc)."""
CHECKED_NODES = 128
"""Up to as many move fewer: the formulas are checked."""


@dataclass(frozen=True)
class ScaleRow:
    """One size. Milliseconds are virtual."""

    nodes: int = column("nodes")
    barrier_ms: float = column("first barrier, ms")
    """From the first SYN, or the request of ARP before it, to the end of the barrier."""
    joined_ms: float = column("all have joined, ms")
    small_ms: float = column("4 KB, ms")
    start_most: int = column("connections of a NIC: start, most")
    start_mean: float = column("mean", ".1f")
    tree_most: int = column("and of a tree, most")
    """After the short all-reduce, which goes by a tree."""
    ring_most: int = column("and of a ring, most")
    ring_mean: float = column("mean", ".1f")
    ring_connects_ms: float = column("in ms")
    large_most: int = column("and of 100 MB, most")
    """Start, and the algorithm of 100 MB."""
    large_mean: float = column("mean", ".1f")
    python_kib: float = column("memory of a NIC: Python, KiB", ".0f")
    rest_kib: float = column("the rest, KiB", ".0f")
    algorithm: str = column("100 MB by")
    large_ms: float = column("ms", ".1f")
    is_computed: bool = column("computed")
    checked_megabytes: float | None = column("check: MB", ".4g")
    """Of the simulation that the formulas are compared with; None: there is none."""
    checked_simulated_ms: float | None = column("simulated, ms")
    checked_computed_ms: float | None = column("computed, ms")


@dataclass(frozen=True)
class _Start:
    barrier_s: float
    joined_s: float
    small_s: float
    start: scale.Connections
    tree: scale.Connections
    ring: scale.Connections
    ring_s: float
    bytes_a_nic: float


def _resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _start(nodes: int, rate_bps: float, round_trip_s: float) -> _Start:
    spec = scale.spec_of(nodes, rate_bps, round_trip_s)
    scale.started(scale.spec_of(2, rate_bps, round_trip_s))  # imports and caches
    before = _resident()
    cluster = scale.started(spec)
    grown = _resident() - before
    barrier_s, start = cluster.now, scale.connections_of(cluster)
    small_s, tree = scale.small_s(cluster), scale.connections_of(cluster)
    ring_s, ring = scale.connect_s(cluster, "ring"), scale.connections_of(cluster)
    joined_s = max(rank.joined_at for rank in cluster.ranks)
    return _Start(barrier_s, joined_s, small_s, start, tree, ring, ring_s, grown / nodes)


def _traced(nodes: int, rate_bps: float, round_trip_s: float) -> float:
    """Python's bytes of a NIC after the first barrier, mapped ones left out."""
    spec = scale.spec_of(nodes, rate_bps, round_trip_s)
    scale.started(scale.spec_of(2, rate_bps, round_trip_s))
    gc.collect()
    tracemalloc.start()
    try:
        cluster = scale.started(spec)
        gc.collect()
        sizes = [trace.size for trace in tracemalloc.take_snapshot().traces]
    finally:
        tracemalloc.stop()
    return sum(size for size in sizes if size < MAPPED_BYTES) / len(cluster.ranks)


def _connected(nodes: int, rate_bps: float, round_trip_s: float) -> scale.Connections:
    """The connections of the start and of the large all-reduce."""
    cluster = scale.started(scale.spec_of(nodes, rate_bps, round_trip_s))
    scale.connect_s(cluster, choose("allreduce", scale.LARGE_BYTES, nodes))
    return scale.connections_of(cluster)


def _large(nodes: int, rate_bps: float, round_trip_s: float, nbytes: int) -> float:
    spec = scale.spec_of(nodes, rate_bps, round_trip_s)
    return scale.large_s(spec, nbytes, choose("allreduce", scale.LARGE_BYTES, nodes))


class _Size:
    """What is measured of one number of nodes, each in a process of its own."""

    def __init__(self, pool: ProcessPoolExecutor, nodes: int, rate_bps: float, round_trip_s: float) -> None:
        path = (nodes, rate_bps, round_trip_s)
        self._nodes = nodes
        self._spec = scale.spec_of(*path)
        self._start = pool.submit(_start, *path)
        self._traced = pool.submit(_traced, *path)
        self._connected = pool.submit(_connected, *path)
        whole = nodes <= SIMULATED_NODES
        self._checked_bytes = scale.LARGE_BYTES if whole else scale.LARGE_BYTES * nodes // NODES[-1]
        self._large: Future[float] | None = None
        if nodes <= CHECKED_NODES:
            self._large = pool.submit(_large, *path, self._checked_bytes)

    def row(self) -> ScaleRow:
        """Return the figures, when they are there."""
        start, large, traced = self._start.result(), self._connected.result(), self._traced.result()
        algorithm = choose("allreduce", scale.LARGE_BYTES, self._nodes)
        computed_s = scale.computed_large_s(self._spec, scale.LARGE_BYTES, algorithm)
        simulated_s = None if self._large is None else self._large.result()
        is_computed = simulated_s is None or self._checked_bytes < scale.LARGE_BYTES
        checked_s = scale.computed_large_s(self._spec, self._checked_bytes, algorithm)
        return ScaleRow(
            nodes=self._nodes,
            barrier_ms=1e3 * start.barrier_s,
            joined_ms=1e3 * start.joined_s,
            small_ms=1e3 * start.small_s,
            start_most=start.start.most,
            start_mean=start.start.mean,
            tree_most=start.tree.most,
            ring_most=start.ring.most,
            ring_mean=start.ring.mean,
            ring_connects_ms=1e3 * start.ring_s,
            large_most=large.most,
            large_mean=large.mean,
            python_kib=traced / 1024,
            rest_kib=(start.bytes_a_nic - traced) / 1024,
            algorithm=algorithm,
            large_ms=1e3 * (computed_s if simulated_s is None or is_computed else simulated_s),
            is_computed=is_computed,
            checked_megabytes=None if simulated_s is None else self._checked_bytes / 1e6,
            checked_simulated_ms=None if simulated_s is None else 1e3 * simulated_s,
            checked_computed_ms=None if simulated_s is None else 1e3 * checked_s,
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES), help="sizes (8 to 1,024)")
    parser.add_argument("--rate", default="10gbit", help="of every link (10gbit)")
    parser.add_argument("--round-trip", default="1ms", help="between any two nodes (1ms)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[ScaleRow]]:
    path = (units.rate_bps(given.rate), units.time_s(given.round_trip))

    def rows() -> Iterator[ScaleRow]:
        workers, context = len(os.sched_getaffinity(0)), get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1) as pool:
            sizes = {nodes: _Size(pool, nodes, *path) for nodes in given.nodes}
            for nodes, size in sizes.items():
                progress(f"{nodes} nodes")
                yield size.row()

    found = as_measured(rows(), columns(ScaleRow), progress)
    title = f"Clusters in virtual time, links of {given.rate}, round trips of {given.round_trip}"
    settings = {"rate": given.rate, "round_trip": given.round_trip}
    return [MeasurementReport("scale", title, columns(ScaleRow), found, settings)]


if __name__ == "__main__":
    sys.exit(harness.main("scale", __doc__, measured, add_options))
