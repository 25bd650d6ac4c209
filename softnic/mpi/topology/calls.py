"""Calls of communicators with a topology: where ranks are, and who their neighbours are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softnic.comm.error_classes import ERR_TOPOLOGY
from softnic.comm.errors import ArgumentError
from softnic.mpi.administration import Administration
from softnic.mpi.topology.topologies import CartTopology, DistGraphTopology, GraphTopology, Topology


class TopologyCalls(Administration):
    """What all topologies have: the neighbours of this rank."""

    def _topology(self) -> Topology:
        """Return the topology. Raises ArgumentError without one."""
        topology: Topology | None = self._properties().topology
        if topology is None:
            raise ArgumentError("the communicator has no topology", code=ERR_TOPOLOGY)
        return topology

    @property
    def inedges(self) -> list[int]:
        """Ranks that this rank receives from."""
        return self._topology().sources(self.rank)

    @property
    def outedges(self) -> list[int]:
        """Ranks that this rank sends to."""
        return self._topology().destinations(self.rank)

    @property
    def inoutedges(self) -> tuple[list[int], list[int]]:
        """Ranks that this rank receives from, and those that it sends to."""
        return self.inedges, self.outedges

    @property
    def indegree(self) -> int:
        """Number of ranks that this rank receives from."""
        return len(self.inedges)

    @property
    def outdegree(self) -> int:
        """Number of ranks that this rank sends to."""
        return len(self.outedges)

    @property
    def degrees(self) -> tuple[int, int]:
        """Numbers of ranks that this rank receives from and sends to."""
        return self.indegree, self.outdegree


class CartCalls(TopologyCalls):
    """What Cartesian topologies have."""

    def _cart(self) -> CartTopology:
        topology = self._topology()
        if not isinstance(topology, CartTopology):
            raise ArgumentError("the topology is not Cartesian", code=ERR_TOPOLOGY)
        return topology

    def Get_dim(self) -> int:
        """Return the number of dimensions."""
        return len(self._cart().dims)

    def Get_topo(self) -> tuple[list[int], list[bool], list[int]]:
        """Return the extents, which dimensions are periodic, and the coordinates of this rank."""
        return self.dims, self.periods, self.coords

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Return the rank at the coordinates `coords`. Raises ArgumentError outside of the grid."""
        return self._cart().rank(coords)

    def Get_coords(self, rank: int) -> list[int]:
        """Return the coordinates of `rank`. Raises ArgumentError."""
        return self._cart().coords(rank)

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return the ranks to receive from and to send to, so that all move data by `disp` along `direction`.

        Outside of a dimension that is not periodic it is MPI.PROC_NULL.
        """
        grid = self._cart()
        return grid.shifted(self.rank, direction, -disp), grid.shifted(self.rank, direction, disp)

    dim = property(Get_dim)
    ndim = property(Get_dim)
    topo = property(Get_topo)

    @property
    def dims(self) -> list[int]:
        """Extents of the grid."""
        return list(self._cart().dims)

    @property
    def periods(self) -> list[bool]:
        """Which dimensions are periodic."""
        return list(self._cart().periods)

    @property
    def coords(self) -> list[int]:
        """Coordinates of this rank."""
        return self._cart().coords(self.rank)


class GraphCalls(TopologyCalls):
    """What graphs have that every rank knows."""

    def _graph(self) -> GraphTopology:
        topology = self._topology()
        if not isinstance(topology, GraphTopology):
            raise ArgumentError("the topology is not a graph", code=ERR_TOPOLOGY)
        return topology

    def Get_dims(self) -> tuple[int, int]:
        """Return the numbers of nodes and of edges."""
        return self.nnodes, self.nedges

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """Return where the edges of each node end, and the edges."""
        return self.index, self.edges

    def Get_neighbors_count(self, rank: int) -> int:
        """Return the number of neighbours of `rank`. Raises ArgumentError."""
        return len(self._graph().sources(rank))

    def Get_neighbors(self, rank: int) -> list[int]:
        """Return the neighbours of `rank`. Raises ArgumentError."""
        return self._graph().sources(rank)

    dims = property(Get_dims)
    topo = property(Get_topo)

    @property
    def nnodes(self) -> int:
        """Number of nodes."""
        return len(self._graph().index)

    @property
    def nedges(self) -> int:
        """Number of edges."""
        return len(self._graph().edges)

    @property
    def index(self) -> list[int]:
        """Where the edges of each node end."""
        return list(self._graph().index)

    @property
    def edges(self) -> list[int]:
        """All edges."""
        return list(self._graph().edges)

    @property
    def nneighbors(self) -> int:
        """Number of neighbours of this rank."""
        return len(self.neighbors)

    @property
    def neighbors(self) -> list[int]:
        """Neighbours of this rank."""
        return self._graph().sources(self.rank)


class DistGraphCalls(TopologyCalls):
    """What graphs have of which each rank knows its own edges."""

    def _dist_graph(self) -> DistGraphTopology:
        topology = self._topology()
        if not isinstance(topology, DistGraphTopology):
            raise ArgumentError("the topology is not a distributed graph", code=ERR_TOPOLOGY)
        return topology

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """Return how many ranks this one receives from and sends to, and whether edges have weights."""
        known = self._dist_graph()
        return len(known.inward), len(known.outward), known.weights is not None

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], tuple[list[int], list[int]] | None]:
        """Return the ranks that this one receives from and sends to, and the weights of both, None without weights."""
        known = self._dist_graph()
        weights: Any = None if known.weights is None else tuple(list(each) for each in known.weights)
        return list(known.inward), list(known.outward), weights
