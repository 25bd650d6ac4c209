"""Topologies: grids and graphs of ranks."""

from __future__ import annotations

import math
from typing import Any

import pytest

from softnic import MPI
from tests.comm.ranks import run
from tests.facades.comm import Communicator


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


def test_only_communicators_of_a_kind_have_another_name_of_that_kind() -> None:
    grid = MPI.COMM_SELF.Create_cart([1])
    assert MPI.Cartcomm(grid) == MPI.Topocomm(grid) == MPI.Intracomm(grid) == MPI.Comm(grid) == grid
    for wrong in (MPI.Graphcomm, MPI.Distgraphcomm, MPI.Intercomm):
        with pytest.raises(TypeError, match=f"is not a {wrong.__name__}"):
            wrong(grid)
        assert wrong() == MPI.COMM_NULL
    with pytest.raises(TypeError, match="is not a Topocomm"):
        MPI.Topocomm(MPI.COMM_SELF)
