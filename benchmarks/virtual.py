"""All-reduces by the NICs in virtual time, by algorithm: the same milliseconds and segments on every machine.

python -m benchmarks.virtual --nodes 8 --algorithm ring direct hierarchical hierarchical:4
"""

from __future__ import annotations

import argparse

import numpy as np

from softnic.model import programs
from softnic.sim.cluster import SimCluster
from softnic.sim.spec import ClusterSpec

WARM_UP = 3


def measured(nodes: int, algorithm: str, codec: str, rate_bps: float, size: int) -> tuple[float, float, float]:
    """Milliseconds of one all-reduce of `size` bytes, after some that open the windows of TCP, and the segments that a
    NIC sent and received in it."""
    cluster = SimCluster(ClusterSpec(nodes=nodes, rate_bps=rate_bps))
    rng = np.random.default_rng(1)
    vectors = [rng.standard_normal(size // 4, np.float32) * np.float32(0.01) for _ in range(nodes)]
    for _ in range(WARM_UP):
        cluster.run(lambda rank: programs.nic(rank, vectors[rank.index].copy(), codec, algorithm))
    counters = [rank.node.nic.counters for rank in cluster.ranks]
    sent = sum(each.tx_segments for each in counters)
    received = sum(each.rx_segments for each in counters)
    taken_s = cluster.run(lambda rank: programs.nic(rank, vectors[rank.index].copy(), codec, algorithm))
    sent = sum(each.tx_segments for each in counters) - sent
    received = sum(each.rx_segments for each in counters) - received
    return 1e3 * taken_s, sent / nodes, received / nodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--algorithm", nargs="+", default=["ring", "direct", "hierarchical", "tree"])
    parser.add_argument("--codec", default="")
    parser.add_argument("--gbit", type=float, default=1.0, help="a second, of every link")
    parser.add_argument("--kib", type=int, default=1024, help="of float32 a rank")
    args = parser.parse_args()
    for algorithm in args.algorithm:
        taken, sent, received = measured(args.nodes, algorithm, args.codec, args.gbit * 1e9, args.kib << 10)
        print(f"{algorithm:16} {taken:8.2f} ms, a NIC sent {sent:.0f} segments, received {received:.0f}", flush=True)


if __name__ == "__main__":
    main()
