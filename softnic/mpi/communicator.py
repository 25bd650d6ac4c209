"""The communicator: every call by mpi4py's names. Capital letter: buffers; small letter: objects.

arguments/buffers.py says what a buffer is. Every call on buffers has a twin ending in `_comp` whose float32 data
crosses the network compressed by the NICs, with `codec` ("bounded:10"; None: the one of this rank's NIC for tagged
streams, which must be the same at all ranks). After a reduction all ranks have the same bits, compressed or not, and
the same in every run; another algorithm or number of ranks may give others.

Calls raise CommError (MPI.Exception); for this rank's own arguments ArgumentError, which is a ValueError too, and after
which the communicator is as usable as before. A dead rank or NIC, and ranks that make different calls, are an error on
every rank within 5 s that names the rank and the call. Buffers to be written are undefined then, and the communicator
has ended (state.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from softnic.comm.bootstrap.discovery import exchange_addresses
from softnic.comm.bootstrap.launch import DEFAULT_TIMEOUT_S, NOWHERE, Launch, job_secret
from softnic.comm.bootstrap.store import Store
from softnic.comm.errors import ArgumentError, LaunchError
from softnic.comm.transport import Transport
from softnic.mpi import handles
from softnic.mpi.base import Base
from softnic.mpi.collectives.exchanges import BufferExchanges
from softnic.mpi.collectives.object_exchange import gather_objects
from softnic.mpi.collectives.whole_buffers import BufferCollectives
from softnic.mpi.constants import UNDEFINED
from softnic.mpi.errhandlers import Errhandler
from softnic.mpi.groups import Group
from softnic.mpi.info import INFO_NULL, Info
from softnic.mpi.intercommunicators import InterCalls, joined_state
from softnic.mpi.ports import PortCalls, join
from softnic.mpi.state import CommunicatorState
from softnic.mpi.subsets import Subsets
from softnic.mpi.survivors import Survivors
from softnic.mpi.topology import topologies
from softnic.mpi.topology.calls import CartCalls, DistGraphCalls, GraphCalls
from softnic.mpi.topology.neighbors import NeighborCalls
from softnic.mpi.topology.topologies import CartTopology, DistGraphTopology, Topology
from softnic.mpi.unsupported import UnsupportedCalls

T = TypeVar("T", bound="Communicator")


class Comm(BufferCollectives, BufferExchanges, Subsets, Survivors, UnsupportedCalls):
    """A communicator of one or two groups.

    Parameters of the calls:

    sendbuf, recvbuf, buf
        Buffers as mpi4py has them: an object with the buffer protocol, or `[buffer, count, type]`. `sendbuf` may be
        MPI.IN_PLACE where mpi4py permits it.
    recvcounts
        Elements of each rank's block.
    sendobj, obj
        Objects, sent by pickle.
    op
        MPI.SUM, PROD, MAX, MIN or AVG; on objects, also a function of two objects.
    root, source, dest
        Ranks. `source` may be MPI.ANY_SOURCE.
    tag, sendtag, recvtag
        Number of a message, which a receive matches; MPI.ANY_TAG matches all.
    status
        Status to fill in, or None.
    codec
        Such as "bounded:10"; None: the codec of this rank's NIC for tagged streams, the same on all ranks.
    algorithm
        ring, direct, tree, hierarchical or wa; None: the best one for the size and the number of ranks.
    """

    @classmethod
    def Get_parent(cls) -> Intercomm:
        """Return a null communicator: no process was spawned by another."""
        return Intercomm()

    @classmethod
    def Join(cls, fd: int) -> Intercomm:
        """Return the communicator of this process and the one at the other end of a connected socket, which calls this,
        too.

        Parameters
        ----------
        fd
            File descriptor of the socket, of any kind. Both processes have NICs that reach each other.
        """
        made: Intercomm = join(handles.constant_named("COMM_SELF"), fd)
        return made


class Communicator(Comm, PortCalls):
    """A communicator of one group, MPI.Intracomm. `Communicator(comm)` is another name for `comm`, `Communicator()` is
    MPI.COMM_NULL. The calls are those of Comm.
    """

    @classmethod
    def _takes(cls, of: Base) -> bool:
        return of._state.properties.inter is None

    @classmethod
    def Create_from_group(
        cls,
        group: Group,
        stringtag: str = "org.mpi4py",
        info: Info = INFO_NULL,
        errhandler: Errhandler | None = None,
    ) -> Any:
        """Return a communicator of the ranks of `group`, processes of MPI.COMM_WORLD, which all call this.

        Parameters
        ----------
        group
            The processes.
        stringtag
            Tells calls of several threads apart.
        info
            Kept with the communicator.
        errhandler
            Its error handler; None: that of MPI.COMM_WORLD.
        """
        world: Any = handles.constant_named("COMM_WORLD")
        made = world.Create_group(group, sum(stringtag.encode()))
        if made:
            made.Set_info(info)
            if errhandler is not None:
                made.Set_errhandler(errhandler)
        return made

    def Create_intercomm(self, local_leader: int, peer_comm: Any, remote_leader: int, tag: int = 0) -> Intercomm:
        """Return a communicator of this group and another one.

        Parameters
        ----------
        local_leader
            A rank of this communicator, the same on all.
        peer_comm
            A communicator that has the leaders of both groups; used by the leaders only.
        remote_leader
            The rank of the other leader there.
        tag
            Of the leaders' messages there.
        """
        state = joined_state(self, local_leader, peer_comm, remote_leader, tag)
        return Intercomm._named(state)

    # Topologies

    def Create_cart(
        self, dims: Sequence[int], periods: Sequence[bool] | bool | None = None, reorder: bool = False
    ) -> Cartcomm:
        """Return a communicator whose ranks lie in a grid, row by row; a null one on ranks beyond it.

        Parameters
        ----------
        dims
            Extents; MPI.Compute_dims chooses them.
        periods
            Which dimensions wrap around; None: none.
        reorder
            Accepted; ranks keep their order.
        """
        del reorder
        grid = topologies.cart(dims, periods, self.size)
        return self._with_topology(Cartcomm, "Create_cart", grid, grid.size)

    def Create_graph(self, index: Sequence[int], edges: Sequence[int], reorder: bool = False) -> Graphcomm:
        """Return a communicator of a graph; a null one on ranks beyond its nodes.

        Parameters
        ----------
        index
            Where the edges of each node end in `edges`, with or without a 0 at the start.
        edges
            The neighbours of all nodes.
        reorder
            Accepted; ranks keep their order.
        """
        del reorder
        nodes = topologies.graph(index, edges, self.size)
        return self._with_topology(Graphcomm, "Create_graph", nodes, len(nodes.index))

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int] | None,
        destinations: Sequence[int] | None,
        sourceweights: Sequence[int] | int | None = None,
        destweights: Sequence[int] | int | None = None,
        info: Info = INFO_NULL,
        reorder: bool = False,
    ) -> Distgraphcomm:
        """Return a communicator of a directed graph, of which each rank gives its own edges.

        Parameters
        ----------
        sources, destinations
            Ranks that this one receives from and sends to; None: none.
        sourceweights, destweights
            Weights of these edges. None or MPI.UNWEIGHTED: they have none.
        info
            Kept with the communicator.
        reorder
            Accepted; ranks keep their order.
        """
        del reorder
        inward = topologies.checked_ranks(sources or (), self.size, "sources")
        outward = topologies.checked_ranks(destinations or (), self.size, "destinations")
        weighted = (
            topologies.checked_weights(sourceweights, len(inward), "sourceweights"),
            topologies.checked_weights(destweights, len(outward), "destweights"),
        )
        both = None if weighted[0] is None or weighted[1] is None else (weighted[0], weighted[1])
        made = self._with_topology(
            Distgraphcomm, "Create_dist_graph_adjacent", DistGraphTopology(inward, outward, both), self.size
        )
        made.Set_info(info)
        return made

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Sequence[int] | int | None = None,
        info: Info = INFO_NULL,
        reorder: bool = False,
    ) -> Distgraphcomm:
        """Return a communicator of a directed graph, of which each rank gives any edges.

        Parameters
        ----------
        sources
            Ranks at which edges start.
        degrees
            Number of edges of each.
        destinations
            Where these edges end.
        weights
            Of the edges; None or MPI.UNWEIGHTED: none.
        info
            Kept with the communicator.
        reorder
            Accepted; ranks keep their order.
        """
        del reorder
        checked = topologies.checked_weights(weights, len(destinations), "weights")
        ends = topologies.checked_ranks(destinations, self.size, "destinations")
        starts = topologies.starts_of(topologies.checked_ranks(sources, self.size, "sources"), degrees, len(ends))
        own = list(zip(starts, ends, checked or [0] * len(starts), strict=True))
        with self._state.call("Create_dist_graph") as connections:
            found = gather_objects(connections, "Create_dist_graph", (own, checked is not None), range(self.size))
        edges = sorted(edge for theirs, _ in found for edge in theirs)
        inward = [(source, weight) for source, to, weight in edges if to == self.rank]
        outward = [(to, weight) for source, to, weight in edges if source == self.rank]
        known = DistGraphTopology(
            tuple(source for source, _ in inward),
            tuple(to for to, _ in outward),
            (tuple(w for _, w in inward), tuple(w for _, w in outward)) if all(has for _, has in found) else None,
        )
        made = self._with_topology(Distgraphcomm, "Create_dist_graph", known, self.size)
        made.Set_info(info)
        return made

    def Cart_map(self, dims: Sequence[int], periods: Sequence[bool] | bool | None = None) -> int:
        """Return the rank that Create_cart gives this process for `dims` and `periods`, MPI.UNDEFINED for none."""
        return self.rank if self.rank < topologies.cart(dims, periods, self.size).size else UNDEFINED

    def Graph_map(self, index: Sequence[int], edges: Sequence[int]) -> int:
        """Return the rank that Create_graph gives this process for `index` and `edges`, MPI.UNDEFINED for none."""
        return self.rank if self.rank < len(topologies.graph(index, edges, self.size).index) else UNDEFINED

    def _with_topology(self, kind: type[T], call: str, topology: Topology, size: int) -> T:
        """Return a communicator of the first `size` ranks with a topology."""
        made: Base = self._split(call, 0 if self.rank < size else UNDEFINED, 0)
        if not made:
            return kind()
        made._state.properties.topology = topology
        made._state.properties.named = kind
        return kind._named(made._state)


class Topocomm(Communicator, NeighborCalls):
    """A communicator with a topology."""

    topology_class: type[Any] | None = None
    """None: any."""

    @classmethod
    def _takes(cls, of: Base) -> bool:
        topology = of._state.properties.topology
        return topology is not None and (cls.topology_class is None or isinstance(topology, cls.topology_class))


class Cartcomm(CartCalls, Topocomm):
    """A communicator whose ranks lie in a grid."""

    topology_class = CartTopology

    def Sub(self, remain_dims: Sequence[bool]) -> Cartcomm:
        """Return the communicator of the ranks that differ from this one only where `remain_dims` is true."""
        grid = self._cart()
        if len(remain_dims) != len(grid.dims):
            raise ArgumentError(f"remain_dims has {len(remain_dims)} entries for {len(grid.dims)} dimensions")
        own = self.coords
        kept = [dimension for dimension, remains in enumerate(remain_dims) if remains]
        color = 0
        for dimension, extent in enumerate(grid.dims):
            if dimension not in kept:
                color = color * extent + own[dimension]
        made: Base = self._split("Sub", color, self.rank)
        made._state.properties.topology = CartTopology(
            tuple(grid.dims[each] for each in kept), tuple(grid.periods[each] for each in kept)
        )
        made._state.properties.named = Cartcomm
        return Cartcomm._named(made._state)


class Graphcomm(GraphCalls, Topocomm):
    """A communicator whose ranks are the nodes of a graph."""

    topology_class = topologies.GraphTopology


class Distgraphcomm(DistGraphCalls, Topocomm):
    """A communicator whose ranks are the nodes of a directed graph, of which each knows its own edges."""

    topology_class = DistGraphTopology


class Intercomm(InterCalls, Comm):
    """A communicator of two groups. `Intercomm(comm)` is another name for one; TypeError for one of one group."""

    @classmethod
    def _takes(cls, of: Base) -> bool:
        return of._state.properties.inter is not None

    @classmethod
    def Create_from_groups(
        cls,
        local_group: Group,
        local_leader: int,
        remote_group: Group,
        remote_leader: int,
        stringtag: str = "org.mpi4py",
        info: Info = INFO_NULL,
        errhandler: Errhandler | None = None,
    ) -> Intercomm:
        """Return a communicator of two groups of MPI.COMM_WORLD's processes, which all call this.

        Parameters
        ----------
        local_group, remote_group
            The group of this process, and the other one.
        local_leader, remote_leader
            A rank of each, the same on all.
        stringtag, info, errhandler
            As in Create_from_group.
        """
        local: Any = Communicator.Create_from_group(local_group, stringtag, info, errhandler)
        (leader,) = remote_group.Translate_ranks([remote_leader])
        world: Any = handles.constant_named("COMM_WORLD")
        made: Intercomm = local.Create_intercomm(local_leader, world, leader, sum(stringtag.encode()))
        local.Free()
        return made


Base.subset_class = Communicator
InterCalls.inter_class = Communicator.inter_class = Intercomm


def init_communicator(
    store: Store,
    rank: int,
    size: int,
    *,
    name: str = "world",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    transport: Transport | None = None,
) -> Communicator:
    """Connect the processes of a job, which find each other through a store, and return their communicator.

    All ranks call this. They use the NIC that SOFTNIC_NIC names or, if no rank has one, NICs that are started for them.

    Parameters
    ----------
    store
        A key-value store that all ranks reach, as torch.distributed.Store.
    rank, size
        The rank of this process, and the number of ranks.
    name
        Tells this communicator from others that are made through the same store.
    timeout_s
        Time limit for each step of the exchange of addresses.
    transport
        What to make connections with. None: the NIC.

    Raises
    ------
    LaunchError
        For a rank outside 0..size-1.
    CommError
        If a rank does not join within `timeout_s` or fails while it joins; the error names that rank.
    """
    if not 0 <= rank < size:
        raise LaunchError(f"rank {rank} of {size}: a rank is 0 or more and less than the size")
    secret = job_secret(os.environ)
    launch = Launch(rank, (NOWHERE,) * size, "store", timeout_s, found="the store given", secret=secret)
    state = CommunicatorState(launch, find=lambda launch: exchange_addresses(store, name, launch, transport))
    communicator = Communicator(state)
    communicator.Init()
    return communicator
