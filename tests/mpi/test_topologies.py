"""Topologies: grids and graphs of ranks."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run


@pytest.mark.parametrize(
    ("nodes", "dims", "expected"),
    [
        (12, 2, [4, 3]),
        (12, 3, [3, 2, 2]),
        (7, [0, 0], [7, 1]),
        (24, [0, 2, 0], [4, 2, 3]),
        (6, [3, 2], [3, 2]),
        (1, 4, [1, 1, 1, 1]),
        (64, 3, [4, 4, 4]),
    ],
)
def test_dimensions_are_near_to_each_other(nodes: int, dims: Any, expected: list[int]) -> None:
    assert MPI.Compute_dims(nodes, dims) == expected


@pytest.mark.parametrize(("nodes", "dims"), [(7, [2, 0]), (6, [3, 3]), (0, 2), (4, [-1, 0])])
def test_ranks_that_make_no_grid(nodes: int, dims: Any) -> None:
    with pytest.raises(MPI.Exception) as wrong:
        MPI.Compute_dims(nodes, dims)
    assert wrong.value.Get_error_class() == MPI.ERR_DIMS


@pytest.mark.parametrize("nodes", range(1, 60))
def test_dimensions_multiply_to_the_ranks(nodes: int) -> None:
    for count in range(1, 5):
        found = MPI.Compute_dims(nodes, count)
        assert math.prod(found) == nodes
        assert found == sorted(found, reverse=True)


def test_a_grid_of_ranks() -> None:
    def program(comm: Communicator) -> Any:
        grid = comm.Create_cart([2, 2], periods=[True, False])
        if comm.rank == 4:
            assert grid == MPI.COMM_NULL
            return None
        assert isinstance(grid, MPI.Cartcomm)
        assert (grid.topology, grid.dim, grid.dims, grid.periods) == (MPI.CART, 2, [2, 2], [True, False])
        assert grid.Get_cart_rank(grid.coords) == grid.rank == comm.Cart_map([2, 2])
        column = grid.Sub([True, False])
        found = grid.coords, grid.Shift(0, 1), grid.Shift(1, 1), grid.inedges, column.allgather(grid.rank)
        with pytest.raises(MPI.Exception, match="outside"):
            grid.Get_cart_rank([0, 2])
        again = grid.Dup()
        assert again.Get_topo() == grid.topo
        assert type(MPI.Comm.fromhandle(again.handle)) is MPI.Cartcomm
        for part in (again, column, grid):
            part.Free()
        return found

    null = MPI.PROC_NULL
    assert run(5, program) == [
        ([0, 0], (2, 2), (null, 1), [2, 2, null, 1], [0, 2]),
        ([0, 1], (3, 3), (0, null), [3, 3, 0, null], [1, 3]),
        ([1, 0], (0, 0), (null, 3), [0, 0, null, 3], [0, 2]),
        ([1, 1], (1, 1), (2, null), [1, 1, 2, null], [1, 3]),
        None,
    ]


def test_a_grid_without_dimensions_has_one_rank() -> None:
    grid = MPI.COMM_SELF.Create_cart([])
    assert (grid.topo, grid.Get_cart_rank([]), grid.inoutedges) == (([], [], []), 0, ([], []))
    with pytest.raises(ValueError, match="1 dimensions and 2 periods"):
        MPI.COMM_SELF.Create_cart([1], [False, False])


@pytest.mark.parametrize("leading", [[], [0]])
def test_a_graph_that_every_rank_knows(leading: list[int]) -> None:
    def program(comm: Communicator) -> Any:
        graph = comm.Create_graph([*leading, 2, 3, 4], [1, 2, 0, 0])
        found = graph.neighbors, graph.Get_neighbors_count(0), graph.degrees
        assert (graph.topology, graph.dims, graph.topo) == (MPI.GRAPH, (3, 4), ([2, 3, 4], [1, 2, 0, 0]))
        assert comm.Graph_map([2, 3, 4], [1, 2, 0, 0]) == graph.rank
        graph.Free()
        return found

    assert run(3, program) == [([1, 2], 2, (2, 2)), ([0], 2, (1, 1)), ([0], 2, (1, 1))]


def test_graphs_of_which_ranks_know_their_edges() -> None:
    def program(comm: Communicator) -> Any:
        before, after = (comm.rank - 1) % 3, (comm.rank + 1) % 3
        ring = comm.Create_dist_graph_adjacent([before], [after], [5], [6])
        assert (ring.topology, ring.Get_dist_neighbors_count()) == (MPI.DIST_GRAPH, (1, 1, True))
        assert ring.Get_dist_neighbors() == ([before], [after], ([5], [6]))
        ring.Free()
        # rank 0 knows all edges
        given = ([0, 2], [2, 1], [1, 2, 0]) if comm.rank == 0 else ([], [], [])
        graph = comm.Create_dist_graph(*given)
        assert graph.Get_dist_neighbors()[2] is None
        found = graph.inoutedges
        graph.Free()
        return found

    assert run(3, program) == [([2], [1, 2]), ([0], []), ([0], [0])]


@pytest.mark.parametrize(
    "make",
    [
        lambda comm: comm.Create_graph([1], [1]),
        lambda comm: comm.Create_dist_graph_adjacent([1], [0]),
        lambda comm: comm.Create_dist_graph_adjacent([0], [-1]),
        lambda comm: comm.Create_dist_graph_adjacent([0], [0], [1, 2], [1]),
        lambda comm: comm.Create_dist_graph([0], [1], [7]),
        lambda comm: comm.Create_dist_graph([3], [1], [0]),
        lambda comm: comm.Create_dist_graph([0], [2], [0]),
        lambda comm: comm.Create_dist_graph([0], [1, 1], [0]),
        lambda comm: comm.Create_cart([1], [True, False]),
        lambda comm: comm.Create_cart([1]).Sub([True, True]),
        lambda comm: comm.Create_cart([1]).neighbor_alltoall([0]),
        lambda comm: comm.Create_intercomm(1, comm, 0),
    ],
)
def test_wrong_edges_and_grids_are_errors_of_mpi(make: Callable[[Any], Any]) -> None:
    with pytest.raises(MPI.Exception):
        make(MPI.COMM_SELF)
    assert MPI.COMM_SELF.allreduce(1) == 1


def test_only_communicators_of_a_kind_have_another_name_of_that_kind() -> None:
    grid = MPI.COMM_SELF.Create_cart([1])
    assert MPI.Cartcomm(grid) == MPI.Topocomm(grid) == MPI.Intracomm(grid) == MPI.Comm(grid) == grid
    for wrong in (MPI.Graphcomm, MPI.Distgraphcomm, MPI.Intercomm):
        with pytest.raises(TypeError, match=f"is not a {wrong.__name__}"):
            wrong(grid)
        assert wrong() == MPI.COMM_NULL
    with pytest.raises(TypeError, match="is not a Topocomm"):
        MPI.Topocomm(MPI.COMM_SELF)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_neighbours_in_a_ring_exchange_blocks(size: int) -> None:
    """Also where both neighbours are one rank, or this one."""

    def program(comm: Communicator) -> Any:
        ring = comm.Create_cart([size], periods=[True])
        sent, got = np.array([[comm.rank, -1], [comm.rank, 1]]), np.zeros((2, 2), int)
        ring.Neighbor_alltoall(sent, got)
        both = np.zeros((2, 1), int)
        ring.Ineighbor_allgather(np.array([comm.rank]), both).Wait()
        found = got.tolist(), both.ravel().tolist(), ring.neighbor_alltoall([f"{comm.rank} down", f"{comm.rank} up"])
        assert ring.neighbor_allgather(comm.rank) == found[1]
        ring.Free()
        return found

    for rank, (got, both, texts) in enumerate(run(size, program)):
        before, after = (rank - 1) % size, (rank + 1) % size
        assert got == [[before, 1], [after, -1]]
        assert both == [before, after]
        assert texts == [f"{before} up", f"{after} down"]


def test_neighbours_in_a_graph_exchange_blocks_of_their_own_lengths() -> None:
    """Rank r sends r + 1 numbers to each of its neighbours; one of the edges is there twice."""
    edges = {0: [1, 1], 1: [2], 2: [0]}

    def program(comm: Communicator) -> Any:
        sources = [rank for rank in edges for to in edges[rank] if to == comm.rank]
        graph = comm.Create_dist_graph_adjacent(sources, edges[comm.rank])
        count = comm.rank + 1
        sent = np.arange(count * len(edges[comm.rank]), dtype=np.float32) + 10 * comm.rank
        got = np.full(sum(source + 1 for source in sources), -1, np.float32)
        graph.Neighbor_alltoallv([sent, [count] * len(edges[comm.rank])], [got, [source + 1 for source in sources]])
        again = np.full_like(got, -1)
        datatypes = [MPI.FLOAT] * len(sources)
        offsets = [4 * sum(source + 1 for source in sources[:place]) for place in range(len(sources))]
        graph.Neighbor_alltoallw(
            [sent, ([count] * len(edges[comm.rank]), [4 * count * k for k in range(len(edges[comm.rank]))]),
             [MPI.FLOAT] * len(edges[comm.rank])],
            [again, ([source + 1 for source in sources], offsets), datatypes],
        )  # fmt: skip
        assert again.tolist() == got.tolist()
        graph.Free()
        return got.tolist()

    assert run(3, program) == [[20.0, 21.0, 22.0], [0.0, 1.0], [10.0, 11.0]]


def test_a_nonblocking_exchange_does_not_wait_for_the_neighbours() -> None:
    def program(comm: Communicator) -> Any:
        ring = comm.Create_cart([2], periods=[True])
        got = np.zeros(2, int)
        if comm.rank == 0:
            request = ring.Ineighbor_alltoall(np.array([1, 2]), got)
            assert not request.Test()
            comm.send("begin", 1)
        else:
            comm.recv(source=0)
            request = ring.Ineighbor_alltoall(np.array([3, 4]), got)
        request.Wait()
        ring.Free()
        return got.tolist()

    assert run(2, program) == [[4, 3], [2, 1]]


def test_a_persistent_exchange_sends_what_the_buffer_has_at_each_start() -> None:
    def program(comm: Communicator) -> Any:
        ring = comm.Create_cart([2], periods=[True])
        sent, got, found = np.zeros(1, int), np.zeros(2, int), []
        request = ring.Neighbor_allgather_init(sent, got, MPI.INFO_NULL)
        for turn in range(2):
            sent[0] = 10 * turn + comm.rank
            request.Start()
            request.Wait()
            found.append(got.tolist())
        request.Free()
        ring.Free()
        return found

    assert run(2, program) == [[[1, 1], [11, 11]], [[0, 0], [10, 10]]]


def test_an_exchange_leaves_no_reference_to_its_buffers() -> None:
    ring = MPI.COMM_SELF.Create_cart([1], periods=[True])
    sent, got = np.arange(2), np.zeros(2, int)
    before = sys.getrefcount(sent), sys.getrefcount(got)
    gc.disable()
    try:
        ring.Neighbor_alltoall(sent, got)
        ring.Ineighbor_alltoall(sent, got).Wait()
        assert (sys.getrefcount(sent), sys.getrefcount(got)) == before
    finally:
        gc.enable()
    ring.Free()


def test_a_neighbours_block_that_does_not_fit_leaves_the_communicator_usable() -> None:
    def program(comm: Communicator) -> int:
        ring = comm.Create_cart([2])
        big, small = np.zeros(50_000), np.zeros((2, 3))
        with pytest.raises(MPI.Exception, match=r"rank \d sent 400000 bytes: the receive buffer takes 24") as wrong:
            ring.Neighbor_allgather(big, small)
        assert wrong.value.Get_error_class() == MPI.ERR_TRUNCATE
        found: int = ring.allreduce(1)
        ring.Free()
        return found

    assert run(2, program) == [2, 2]
