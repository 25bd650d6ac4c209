"""Many ranks in virtual time: pinned times, connections of a NIC, growth, and the formulas of long all-reduces.

Times are nanoseconds, the same on every machine. A commit that changes one says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import pytest

from benchmarks.scale import NODES
from softnic.collectives.schedule import choose
from softnic.model import scale
from softnic.model.scale import Connections
from softnic.sim.mesh import PORTS

RATE_BPS, ROUND_TRIP_S = 10e9, 1e-3
ASKED_S = 0.1
"""Of the first barrier at 1,024 nodes."""


@dataclass(frozen=True)
class Pinned:
    """What a size takes, in nanoseconds, and its NICs' connections."""

    joined: int
    barrier: int
    small: int
    ring: int
    start: Connections
    with_ring: Connections


PINNED = {
    8: Pinned(5000561, 7001182, 2104939, 2800467, Connections(20, 8.75), Connections(25, 16.25)),
    64: Pinned(5902849, 8904363, 3407322, 2896950, Connections(45, 9.84375), Connections(50, 17.34375)),
    1024: Pinned(7935338, 12953050, 5807439, 2900379, Connections(75, 9.990234375), Connections(80, 17.490234375)),
}
SIZES = [8, 64, pytest.param(1024, marks=pytest.mark.slow)]


@cache
def found(nodes: int) -> Pinned:
    cluster = scale.started(scale.spec_of(nodes, RATE_BPS, ROUND_TRIP_S))
    joined_s, barrier_s = max(rank.joined_at for rank in cluster.ranks), cluster.now
    start = scale.connections_of(cluster)
    small_s = scale.small_s(cluster)
    assert scale.connections_of(cluster) == start  # a short sum goes by the tree that is there
    ring_s = scale.connect_s(cluster, "ring")
    joined, barrier, small, ring = (round(1e9 * seconds) for seconds in (joined_s, barrier_s, small_s, ring_s))
    return Pinned(joined, barrier, small, ring, start, scale.connections_of(cluster))


def levels(nodes: int) -> int:
    """Levels of a tree whose ranks have three children at each."""
    return math.ceil(math.log(nodes, 4))


@pytest.mark.parametrize("nodes", SIZES)
def test_a_size_takes_its_pinned_times(nodes: int) -> None:
    assert found(nodes) == PINNED[nodes]


@pytest.mark.parametrize("nodes", SIZES)
def test_the_first_barrier_ends_within_what_is_asked(nodes: int) -> None:
    assert found(nodes).barrier < 1e9 * ASKED_S


@pytest.mark.parametrize("nodes", SIZES)
def test_a_nic_has_a_logarithm_of_connections_for_barriers_and_those_of_two_ranks_more_for_a_ring(nodes: int) -> None:
    size = found(nodes)
    assert size.start.most <= len(PORTS) * 3 * levels(nodes)
    assert size.start.mean < 2 * len(PORTS)
    assert size.with_ring.most <= size.start.most + 2 * len(PORTS)


@pytest.mark.parametrize("nodes", SIZES)
def test_each_level_of_the_tree_costs_two_round_trips_half_by_the_start_and_half_by_the_barrier(nodes: int) -> None:
    size, smallest = found(nodes), found(8)
    more = levels(nodes) - levels(8)
    assert size.barrier - smallest.barrier <= 1e9 * (2 * more * ROUND_TRIP_S + 50e-6)
    assert size.joined - smallest.joined <= 1e9 * (more * ROUND_TRIP_S + 50e-6)


@pytest.mark.parametrize("nodes", SIZES)
def test_a_ring_connects_in_three_round_trips_whatever_the_size(nodes: int) -> None:
    assert found(nodes).ring <= 3e9 * ROUND_TRIP_S  # ARP, TCP, Hello


@pytest.mark.parametrize(("nodes", "megabytes"), [(8, 10), (24, 20)])
def test_long_sums_are_computed_within_5_percent(nodes: int, megabytes: int) -> None:
    spec, nbytes = scale.spec_of(nodes, RATE_BPS, ROUND_TRIP_S), 10**6 * megabytes
    algorithm = choose("allreduce", nbytes, nodes)
    simulated_s = scale.large_s(spec, nbytes, algorithm)
    assert abs(scale.computed_large_s(spec, nbytes, algorithm) / simulated_s - 1) < 0.05


@pytest.mark.parametrize("nodes", NODES)
def test_each_published_size_has_a_formula_that_takes_longer_than_its_bytes(nodes: int) -> None:
    spec = scale.spec_of(nodes, RATE_BPS, ROUND_TRIP_S)
    algorithm = choose("allreduce", scale.LARGE_BYTES, nodes)
    bytes_s = 2 * (nodes - 1) / nodes * 8 * scale.LARGE_BYTES / RATE_BPS
    assert bytes_s < scale.computed_large_s(spec, scale.LARGE_BYTES, algorithm) < 1.3 * bytes_s


@pytest.mark.parametrize(("nodes", "algorithm"), [(17, "hierarchical"), (8, "direct")])
def test_there_is_no_formula_for_unequal_groups_and_other_algorithms(nodes: int, algorithm: str) -> None:
    with pytest.raises(ValueError, match=f"no formula for {algorithm}"):
        scale.computed_large_s(scale.spec_of(nodes, RATE_BPS, ROUND_TRIP_S), 10**6, algorithm)


def test_one_rank_needs_nobody() -> None:
    assert scale.computed_large_s(scale.spec_of(1, RATE_BPS, ROUND_TRIP_S), 10**6, "ring") == 0.0
    assert scale.connections_of(scale.started(scale.spec_of(1, RATE_BPS, ROUND_TRIP_S))) == Connections(0, 0.0)
