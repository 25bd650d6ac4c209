"""All-reduces by the NICs in virtual time, by algorithm: times and segments are the same on every machine.

python -m benchmarks.virtual --nodes 8 --algorithm ring direct hierarchical hierarchical:4
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks import harness
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.model import programs
from softnic.sim.cluster import SimCluster
from softnic.sim.spec import ClusterSpec

WARM_UP = 3


@dataclass(frozen=True)
class VirtualRow:
    algorithm: str = column("algorithm")
    milliseconds: float = column("ms")
    sent: float = column("segments sent by a NIC", ".0f")
    """Segments that a NIC sent, mean of all."""
    received: float = column("received", ".0f")


def one(nodes: int, algorithm: str, codec: str, rate_bps: float, size: int) -> VirtualRow:
    """One all-reduce of `size` bytes, after some that open the windows of TCP."""
    cluster = SimCluster(ClusterSpec(nodes=nodes, rate_bps=rate_bps))
    rng = np.random.default_rng(1)
    vectors = [rng.standard_normal(size // 4, np.float32) * np.float32(0.01) for _ in range(nodes)]

    def exchange() -> float:
        return cluster.run(lambda rank: programs.nic(rank, vectors[rank.index].copy(), codec, algorithm))

    for _ in range(WARM_UP):
        exchange()
    counters = [rank.node.nic.counters for rank in cluster.ranks]
    sent, received = sum(each.tx_segments for each in counters), sum(each.rx_segments for each in counters)
    taken_s = exchange()
    sent = sum(each.tx_segments for each in counters) - sent
    received = sum(each.rx_segments for each in counters) - received
    return VirtualRow(algorithm, 1e3 * taken_s, sent / nodes, received / nodes)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=8, help="ranks (8)")
    parser.add_argument("--algorithm", nargs="+", default=["ring", "direct", "hierarchical", "tree"])
    parser.add_argument("--codec", default="", help="exact without it")
    parser.add_argument("--gbit", type=float, default=1.0, help="per second, of every link (1)")
    parser.add_argument("--kib", type=int, default=1024, help="of float32 a rank (1024)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[VirtualRow]]:
    def simulated() -> Iterator[VirtualRow]:
        for algorithm in given.algorithm:
            progress(algorithm)
            yield one(given.nodes, algorithm, given.codec, given.gbit * 1e9, given.kib << 10)

    rows = as_measured(simulated(), columns(VirtualRow), progress)
    title = f"All-reduce of {given.kib} KiB by {given.nodes} NICs in virtual time, {given.gbit:g} Gbit/s"
    settings = {name: getattr(given, name) for name in ("nodes", "codec", "gbit", "kib")}
    return [MeasurementReport("virtual", title, columns(VirtualRow), rows, settings)]


if __name__ == "__main__":
    sys.exit(harness.main("virtual", __doc__, measured, add_options))
