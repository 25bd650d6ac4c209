"""The virtual-time cluster: programs, time, the switch, and correct sums."""

from __future__ import annotations

import numpy as np
import pytest

from softnic.collectives.schedule import EVEN, PathPlan
from softnic.collectives.schedule.paths import PathReport, plan
from softnic.link.memory import MemoryNetwork
from softnic.model import programs
from softnic.model.smartnic import LayerTimes
from softnic.packet import arp, ethernet
from softnic.packet.frames import Frames
from softnic.sim.clock import Stalled
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Floats, Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec
from softnic.sim.switch import SwitchedLink

COUNT = 4096
"""Floats of a vector."""


def vectors(nodes: int, count: int = COUNT) -> list[Floats]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(count, np.float32) * np.float32(0.01) for _ in range(nodes)]


def test_computing_takes_the_given_time() -> None:
    cluster = SimCluster(ClusterSpec(nodes=2))

    def program(rank: SimRank) -> Program:
        yield rank.compute(0.25 if rank.index else 1.5)

    assert cluster.run(program) == pytest.approx(1.5)


def test_bytes_arrive_in_order_and_take_the_links_time() -> None:
    cluster = SimCluster(ClusterSpec(nodes=2, rate_bps=1e8, delay_s=1e-3))
    data = np.random.default_rng(1).integers(0, 256, 10**6, np.uint8)
    received = np.zeros_like(data)

    def program(rank: SimRank) -> Program:
        if rank.index == 0:
            rank.send(1, data[:10].data)
            rank.send(1, data[10:].data)
            return
        yield rank.receive(0, received[:500_000].data)
        yield rank.receive(0, received[500_000:].data)

    taken = cluster.run(program)
    assert np.array_equal(received, data)
    assert 0.08 < taken < 0.11  # 10^6 bytes at 10^8 bit/s, slow start at the beginning


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "hierarchical", "tree", "wa"])
def test_nics_sum_by_every_algorithm(nodes: int, algorithm: str) -> None:
    cluster = SimCluster(ClusterSpec(nodes=nodes))
    own = vectors(nodes)
    expected = np.sum(own, axis=0)
    cluster.run(lambda rank: programs.nic(rank, own[rank.index], algorithm=algorithm))
    for vector in own:
        np.testing.assert_allclose(vector, expected, atol=1e-6)
        assert np.array_equal(vector, own[0])


def test_compressed_sums_have_the_same_bits_on_every_rank() -> None:
    cluster = SimCluster(ClusterSpec(nodes=4))
    own = vectors(4)
    expected = np.sum(own, axis=0)
    cluster.run(lambda rank: programs.nic(rank, own[rank.index], "bounded:10"))
    assert all(np.array_equal(vector, own[0]) for vector in own)
    assert 0 < np.abs(own[0] - expected).max() < 5 * 2**-10


@pytest.mark.parametrize("codec", ["", "bfp:7"])
def test_hosts_sum_step_by_step(codec: str) -> None:
    cluster = SimCluster(ClusterSpec(nodes=3))
    own = vectors(3)
    expected = np.sum(own, axis=0)
    cluster.run(lambda rank: programs.ring(rank, own[rank.index], gamma=1e-9, codec=codec))
    for vector in own:
        np.testing.assert_allclose(vector, expected, atol=1e-6 if not codec else 2e-3)


def test_an_aggregator_sums_the_vectors_of_workers() -> None:
    cluster = SimCluster(ClusterSpec(nodes=4))
    own = vectors(4)
    expected = np.sum(own[:3], axis=0)
    cluster.run(lambda rank: programs.worker_aggregator(rank, own[rank.index]))
    for vector in own:
        np.testing.assert_allclose(vector, expected, atol=1e-6)


def test_the_same_spec_gives_the_same_times() -> None:
    def seconds() -> list[float]:
        cluster = SimCluster(ClusterSpec(nodes=3, loss=0.01, seed=3))
        own = vectors(3)
        return [cluster.run(lambda rank: programs.nic(rank, own[rank.index])) for _ in range(3)]

    assert seconds() == seconds()


def test_an_overlapped_iteration_hides_the_exchange_behind_computation() -> None:
    """With long backward passes, only the first layer's exchange is exposed."""
    layer_times = [LayerTimes(0.01, 0.02, 0.0, 0.0001)] * 3
    cluster = SimCluster(ClusterSpec(nodes=2))
    own = vectors(2, 3 * COUNT)

    def program(rank: SimRank) -> Program:
        return programs.overlapped(rank, layer_times, np.split(own[rank.index], 3))

    cluster.run(program)
    compute = 3 * (0.01 + 0.02 + 0.0001)
    assert compute + 1e-4 < cluster.run(program) < compute + 1e-3


def test_a_program_that_waits_for_ever_is_an_error() -> None:
    cluster = SimCluster(ClusterSpec(nodes=2))
    memory = np.zeros(8, np.uint8)

    def program(rank: SimRank) -> Program:
        if rank.index:
            yield rank.receive(0, memory.data)

    with pytest.raises(Stalled, match="nothing is left"):
        cluster.run(program, limit_s=1.0)


def test_a_rank_runs_one_program_at_a_time() -> None:
    cluster = SimCluster(ClusterSpec(nodes=1))

    def program(rank: SimRank) -> Program:
        rank.start(program(rank))
        yield rank.compute(1.0)

    with pytest.raises(RuntimeError, match="one program"):
        cluster.run(program)


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"nodes": 2, "rate_bps": 0.0}, {"nodes": 2, "delay_s": -1.0}])
def test_impossible_clusters_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"1 node|rate_bps|delay_s"):
        SimCluster(ClusterSpec(**wrong))  # type: ignore[arg-type]


# The switch's port


def port(rate_bps: float) -> tuple[SwitchedLink, MemoryNetwork]:
    network = MemoryNetwork()
    return SwitchedLink(network.port(), rate_bps), network


def batch(source: int, size: int = 1000) -> Frames:
    """One frame from a station to a group address, so that it reaches every port."""
    return Frames.of([b"\xff" * 6 + bytes([2, 0, 0, 0, 0, source]) + bytes(size - 12)])


def test_two_senders_share_the_link_to_a_node() -> None:
    link, network = port(8e6)  # a byte a microsecond
    first, second = network.port(), network.port()
    first.send(batch(1), 1.0)
    second.send(batch(2), 1.0)
    assert link.receive(1.0) is not None  # cut through: its own link took the time
    assert link.receive(1.0) is None
    assert link.next_time() == pytest.approx(1.001)
    assert link.receive(1.0011) is not None
    assert link.most_waiting_s == pytest.approx(1e-3)


def asked(sender: int, target: int) -> Frames:
    """A request of ARP by the node of one address for that of another."""
    mac = ethernet.mac_of(sender)
    question = arp.build(arp.Arp(arp.REQUEST, mac, sender, bytes(6), target))
    return Frames.of([ethernet.build(ethernet.BROADCAST, mac, ethernet.TYPE_ARP, question)])


@pytest.mark.parametrize(
    ("frames", "comes"),
    [
        (asked(5, 9), False),
        (asked(5, 1), True),  # for this node
        (asked(5, 5), True),  # an announcement
        (asked(7, 9), True),  # of a peer that it knows
        (Frames.of([*asked(5, 9), *asked(5, 1)]), True),
        (batch(3), True),  # other broadcasts
    ],
)
def test_a_request_of_arp_that_a_node_drops_takes_its_time_on_the_link_and_ends_there(
    frames: Frames, comes: bool
) -> None:
    network = MemoryNetwork()
    link = SwitchedLink(network.port(), 8e6, ip=1, knows=lambda peer: peer == 7)
    network.port().send(frames, 1.0)
    network.port().send(batch(4), 1.0)
    assert (link.receive(1.0) is not None) == comes
    assert link.receive(1.0) is None
    assert link.next_time() == pytest.approx(1.001)


def test_a_single_sender_at_the_links_rate_never_waits() -> None:
    link, network = port(8e6)
    sender = network.port()
    for index in range(5):
        sender.send(batch(1), 1.0 + index * 1e-3)
        assert link.receive(1.0 + index * 1e-3) is not None
    assert link.next_time() is None


def test_links_of_different_rates_and_what_their_nics_measure() -> None:
    """A rank at a fifth of the others' rate is found, and with blocks by rates a sum takes little more than it must."""
    nodes, count, slow_bps = 4, 1_000_000, 2e7
    cluster = SimCluster(ClusterSpec(nodes=nodes, rate_bps=1e8, rates_bps={3: slow_bps}, delay_s=1e-4))
    taken = []
    path = EVEN
    for _ in range(2):
        data = vectors(nodes, count)
        expected = np.sum(data, axis=0, dtype=np.float64)

        def program(rank: SimRank, data: list[Floats] = data, path: PathPlan = path) -> Program:
            yield rank.post(data[rank.index], "", "direct", path)

        taken.append(cluster.run(program))
        assert all(each.tobytes() == data[0].tobytes() for each in data)
        assert np.allclose(data[0], expected, atol=1e-6)
        rtts = tuple(2e-4 for _ in range(nodes))
        path = plan([PathReport(rank.link_rate, rtts) for rank in cluster.ranks], path)
    assert (
        slow_bps * 0.9 < 8 * cluster.ranks[3].link_rate < slow_bps * 2
    )  # over 0.1 s, acknowledgements may come in bursts
    assert path.shares[3] == 0
    least_s = 4 * count * 8 / slow_bps
    assert taken[0] / least_s > 1.5
    assert taken[1] / least_s < 1.2


def test_no_rate_is_measured_where_nothing_waits_to_be_sent() -> None:
    cluster = SimCluster(ClusterSpec(nodes=3))
    for _ in range(3):
        cluster.run(lambda rank: programs.nic(rank, vectors(3)[rank.index], "", "direct"))
    assert [rank.link_rate for rank in cluster.ranks] == [0.0] * 3


def test_sums_over_a_long_path_with_losses() -> None:
    """Three streams of each NIC share its link: one whose window was bounded grows again when the others have ended."""
    nodes, count = 4, 2_500_000
    cluster = SimCluster(ClusterSpec(nodes=nodes, rate_bps=1e8, delay_s=0.025, loss=0.005))
    least_s = 2 * (nodes - 1) / nodes * 4 * count * 8 / 1e8
    data = vectors(nodes, count)
    taken = [
        cluster.run(lambda rank: programs.nic(rank, data[rank.index].copy(), "", "direct")) / least_s for _ in range(4)
    ]
    assert max(taken) < 1.6
