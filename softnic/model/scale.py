"""Many ranks in virtual time: the start of a communicator, short and long all-reduces, and how they grow.

Ranks start at one instant, connect the pairs of a tree, and other pairs when a schedule needs them
(softnic/sim/mesh.py). So does each size here, also the small ones, whose real ranks all connect at the start. Clusters
of a thousand nodes can be simulated as long as few bytes move. What a long all-reduce takes there is computed, by the
formulas of smartnic.py, and compared with the simulation at sizes where that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softnic.collectives.schedule import choose, parse
from softnic.collectives.schedule.hierarchical import groups
from softnic.model import check, programs
from softnic.model.layers import BYTES, Layer
from softnic.sim.cluster import SimCluster
from softnic.sim.spec import ClusterSpec

SMALL_BYTES = 4 << 10
LARGE_BYTES = 100_000_000


def spec_of(nodes: int, rate_bps: float, round_trip_s: float) -> ClusterSpec:
    """Return a cluster whose ranks connect when they need to."""
    return ClusterSpec(nodes=nodes, rate_bps=rate_bps, delay_s=round_trip_s / 2, connect="needed")


@dataclass(frozen=True, slots=True)
class Connections:
    """The open connections of a NIC, of all NICs of a cluster."""

    most: int
    mean: float


def connections_of(cluster: SimCluster) -> Connections:
    """Return the connections that the NICs have now."""
    found = [rank.connections for rank in cluster.ranks]
    return Connections(max(found), sum(found) / len(found))


def started(spec: ClusterSpec) -> SimCluster:
    """Return a cluster at the end of its first barrier, in which each rank takes part as soon as it has joined.

    `now` is the time since the first rank has begun to connect, in seconds.
    """
    return SimCluster(spec, programs.barrier)


def small_s(cluster: SimCluster, nbytes: int = SMALL_BYTES) -> float:
    """Return the seconds of a short exact all-reduce, by the algorithm of its size."""
    algorithm = choose("allreduce", nbytes, len(cluster.ranks))
    vectors = [np.ones(nbytes // BYTES, np.float32) for _ in cluster.ranks]
    return cluster.run(lambda rank: programs.nic(rank, vectors[rank.index], algorithm=algorithm))


def connect_s(cluster: SimCluster, algorithm: str) -> float:
    """Return the seconds in which all ranks connect with those that an all-reduce by this algorithm needs."""
    return cluster.run(lambda rank: programs.connect(rank, algorithm))


def large_s(spec: ClusterSpec, nbytes: int, algorithm: str) -> float:
    """Return the seconds of an exact all-reduce by the NICs, after one that opens the connections' windows.

    All ranks sum one buffer of zeros in place, so that its memory is that of one rank.
    """
    cluster = SimCluster(spec)
    vector = np.zeros(nbytes // BYTES, np.float32)
    for _ in range(2):
        taken = cluster.run(lambda rank: programs.nic(rank, vector, algorithm=algorithm))
    return taken


def computed_large_s(spec: ClusterSpec, nbytes: int, algorithm: str) -> float:
    """Return what the formulas say of `large_s`: a ring, or rings in groups and one of groups for each group's part.

    Raises ValueError for other algorithms, and for unequal groups.
    """
    name, group = parse(algorithm)
    if name == "ring":
        return _ring_s(spec, spec.nodes, nbytes)
    parts = groups(spec.nodes, int(group)) if name == "hierarchical" else []
    if not parts or len({len(part) for part in parts}) > 1:
        raise ValueError(f"there is no formula for {algorithm} with {spec.nodes} ranks")
    return _ring_s(spec, len(parts[0]), nbytes) + _ring_s(spec, len(parts), nbytes // len(parts[0]))


def _ring_s(spec: ClusterSpec, nodes: int, nbytes: int) -> float:
    if nodes == 1:
        return 0.0
    case = check.CheckCase(
        strategy="nic",
        nodes=nodes,
        network=(Layer("all", nbytes // BYTES, 0.0, 0.0),),
        name="",
        rate_bps=spec.rate_bps,
        delay_s=spec.delay_s,
        coalesce_s=spec.coalesce_s,
    )
    return check.predict(case)
