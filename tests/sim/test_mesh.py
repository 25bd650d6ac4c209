"""Simulated ranks connect as real ones do: a tree at the start, and other pairs when they are needed."""

from __future__ import annotations

import numpy as np
import pytest

from softnic.collectives import pairs
from softnic.collectives.schedule import peers
from softnic.comm import messages
from softnic.model import programs
from softnic.sim import mesh
from softnic.sim.cluster import SimCluster
from softnic.sim.mesh import PORTS
from softnic.sim.processes import Floats, Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec


def spec_of(nodes: int, **more: float) -> ClusterSpec:
    return ClusterSpec(nodes=nodes, connect="needed", **more)  # type: ignore[arg-type]


def vectors(nodes: int, count: int = 4096) -> list[Floats]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(count, np.float32) for _ in range(nodes)]


def connected(cluster: SimCluster) -> list[int]:
    return [rank.connections for rank in cluster.ranks]


def test_frames_are_about_as_long_as_those_of_processes() -> None:
    hello = messages.Hello(messages.VERSION, 1024, 1023, 4, messages.DATA)
    assert abs(len(messages.pack(hello)) - mesh.HELLO_BYTES) <= 8
    assert abs(len(messages.pack(messages.Gathered(1))) - mesh.GATHERED_BYTES) <= 2
    assert len(PORTS) == messages.CHANNELS


@pytest.mark.parametrize("nodes", [1, 2, 9, 17])
def test_at_the_start_ranks_have_the_connections_of_a_tree(nodes: int) -> None:
    cluster = SimCluster(spec_of(nodes))
    trees = [len(pairs.at_start(rank, nodes, "needed")) for rank in range(nodes)]
    assert connected(cluster) == [len(PORTS) * count for count in trees]


def test_more_than_a_few_ranks_connect_so_by_themselves() -> None:
    few, many = SimCluster(ClusterSpec(nodes=8)), SimCluster(ClusterSpec(nodes=9))
    assert set(connected(few)) == {7 * 3}
    assert max(connected(many)) == 5 * len(PORTS)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "hierarchical", "tree", "wa"])
def test_the_first_call_connects_what_its_schedule_needs_and_sums(algorithm: str) -> None:
    nodes = 12
    cluster = SimCluster(spec_of(nodes))
    own = vectors(nodes)
    expected = np.sum(own, axis=0)
    cluster.run(lambda rank: programs.nic(rank, own[rank.index], algorithm=algorithm))
    cluster.run(programs.barrier)  # calls have closed
    for vector in own:
        np.testing.assert_allclose(vector, expected, atol=1e-4)
        assert np.array_equal(vector, own[0])
    needed = [
        pairs.at_start(rank, nodes, "needed") | peers("allreduce", algorithm, rank, nodes, -1) for rank in range(nodes)
    ]
    assert connected(cluster) == [len(PORTS) * len(ranks) for ranks in needed]


def test_a_second_call_connects_nothing() -> None:
    cluster = SimCluster(spec_of(10))
    cluster.run(lambda rank: programs.connect(rank, "ring"))
    opened = [rank.node.host.counters.connections_opened for rank in cluster.ranks]
    own = vectors(10)
    cluster.run(lambda rank: programs.nic(rank, own[rank.index]))
    assert [rank.node.host.counters.connections_opened for rank in cluster.ranks] == opened


def test_a_rank_connects_on_behalf_of_a_lower_one_that_calls_it() -> None:
    """Rank 2 alone needs rank 7, which has nothing to send it."""
    cluster = SimCluster(spec_of(10))
    memory = bytearray(4)

    def program(rank: SimRank) -> Program:
        if rank.index == 2:
            rank.send(7, memoryview(b"word"))
        if rank.index == 7:
            yield rank.compute(0.1)
            yield rank.receive(2, memoryview(memory))

    before = connected(cluster)
    cluster.run(program)
    grown = [after - was for after, was in zip(connected(cluster), before, strict=True)]
    assert memory == b"word"
    assert grown == [len(PORTS) if rank in (2, 7) else 0 for rank in range(10)]


def test_hosts_exchange_over_connections_made_when_needed() -> None:
    cluster = SimCluster(spec_of(9))
    own = vectors(9, 9 * 16)
    expected = np.sum(own, axis=0)
    cluster.run(lambda rank: programs.ring(rank, own[rank.index]))
    for vector in own:
        np.testing.assert_allclose(vector, expected, atol=1e-4)


def test_ranks_join_over_a_lossy_network() -> None:
    cluster = SimCluster(spec_of(20, loss=0.05, seed=5), programs.barrier)
    assert max(connected(cluster)) == 7 * len(PORTS)


def test_a_rank_begins_its_program_when_all_have_started_not_when_all_know() -> None:
    cluster = SimCluster(spec_of(20, delay_s=1e-3), programs.barrier)
    joined = [rank.joined_at for rank in cluster.ranks]
    assert joined[0] == min(joined) < max(joined) < cluster.now


def test_an_unknown_choice_of_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="all or needed"):
        ClusterSpec(nodes=2, connect="some")
