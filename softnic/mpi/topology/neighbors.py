"""Neighbourhood collectives: every rank exchanges data with its neighbours in the topology.

A call is one message to each neighbour and one from each, which are all sent at once; no other rank takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softnic.collectives.elements import raw
from softnic.comm.errors import ArgumentError
from softnic.mpi.arguments.blocks import BlockLayout, equal, same, typed, varying
from softnic.mpi.arguments.buffers import RECEIVE, SEND
from softnic.mpi.info import INFO_NULL, Info
from softnic.mpi.p2p.persistent import Prequest
from softnic.mpi.pickling import pickle
from softnic.mpi.requests.request import Request
from softnic.mpi.topology.calls import TopologyCalls
from softnic.mpi.topology.neighbor_exchange import ExchangeRecv, ExchangeSend, NeighborOperation
from softnic.mpi.topology.topologies import CartTopology


def _numbered(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return each rank with the number of its earlier appearances."""
    return [(rank, ranks[:place].count(rank)) for place, rank in enumerate(ranks)]


def _nothing() -> None:
    """Do nothing at the end of an exchange."""


def _named(call: Callable[..., Any], name: str, text: str) -> None:
    """Give a call the name and the docstring that users see."""
    call.__name__, call.__qualname__, call.__doc__ = name, f"NeighborCalls.{name}", text


def _calls(
    name: str, sent: BlockLayout, received: BlockLayout, what: str
) -> tuple[Callable[..., None], Callable[..., Request], Callable[..., Prequest]]:
    """Return the blocking, the nonblocking and the persistent call of a collective, which differ in their blocks."""

    def blocking(self: NeighborCalls, sendbuf: Any, recvbuf: Any) -> None:
        with self._state.call(name):
            operation = self._begin_exchange(name, sendbuf, sent, recvbuf, received)
            operation.run()
        operation.result()

    def nonblocking(self: NeighborCalls, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self._begin_exchange(f"I{name.lower()}", sendbuf, sent, recvbuf, received))

    def persistent(self: NeighborCalls, sendbuf: Any, recvbuf: Any, info: Info = INFO_NULL) -> Prequest:
        del info
        return Prequest.of(lambda: self._begin_exchange(f"{name}_init", sendbuf, sent, recvbuf, received))

    _named(blocking, name, what)
    _named(nonblocking, f"I{name.lower()}", f"Start {name}, and return its Request.")
    _named(persistent, f"{name}_init", f"Return a persistent request of {name}: each Start begins the call.")
    return blocking, nonblocking, persistent


class NeighborCalls(TopologyCalls):
    """The collectives of communicators with a topology.

    Parameters of the calls:

    sendbuf, recvbuf
        Buffers as in Allgather, Alltoall and their v and w forms, with a block for each neighbour.
    sendobj
        An object; in neighbor_alltoall a sequence of one for each neighbour.
    info
        Accepted.
    """

    Neighbor_allgather, Ineighbor_allgather, Neighbor_allgather_init = _calls(
        "Neighbor_allgather", same, equal, "Send a block to all neighbours, and receive one of each."
    )
    Neighbor_allgatherv, Ineighbor_allgatherv, Neighbor_allgatherv_init = _calls(
        "Neighbor_allgatherv", same, varying, "Neighbor_allgather with blocks of any length."
    )
    Neighbor_alltoall, Ineighbor_alltoall, Neighbor_alltoall_init = _calls(
        "Neighbor_alltoall", equal, equal, "Send each neighbour its block, and receive one of each."
    )
    Neighbor_alltoallv, Ineighbor_alltoallv, Neighbor_alltoallv_init = _calls(
        "Neighbor_alltoallv", varying, varying, "Neighbor_alltoall with blocks of any length."
    )
    Neighbor_alltoallw, Ineighbor_alltoallw, Neighbor_alltoallw_init = _calls(
        "Neighbor_alltoallw", typed, typed, "Neighbor_alltoall with blocks of any length and datatype."
    )

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """Send an object to all neighbours, and return theirs."""
        data = memoryview(pickle.dumps(sendobj))
        return self._exchange_objects("neighbor_allgather", [data] * self.outdegree)

    def neighbor_alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send each neighbour its object, and return theirs."""
        data = [memoryview(pickle.dumps(each)) for each in sendobj]
        if len(data) != self.outdegree:
            raise ArgumentError(f"neighbor_alltoall: {len(data)} objects for {self.outdegree} neighbours")
        return self._exchange_objects("neighbor_alltoall", data)

    def _slots(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the neighbours to send to and to receive from, each with the tag of its message.

        In a grid, what is sent down arrives from above, also where both neighbours are the same rank. In a graph, the
        messages of two ranks keep their order.
        """
        sources, destinations = self.inoutedges
        if isinstance(self._topology(), CartTopology):
            return (
                [(rank, slot ^ 1) for slot, rank in enumerate(destinations)],
                [(rank, slot) for slot, rank in enumerate(sources)],
            )
        return _numbered(destinations), _numbered(sources)

    def _begin_exchange(
        self, call: str, sendbuf: Any, sent: BlockLayout, recvbuf: Any, received: BlockLayout
    ) -> NeighborOperation:
        """Start to exchange blocks with all neighbours."""
        out_slots, in_slots = self._slots()
        with self._state.call(call) as connections:
            outgoing = sent(sendbuf, len(out_slots), SEND).arrays
            incoming = received(recvbuf, len(in_slots), RECEIVE, writable=True)

            def finish() -> None:
                for buffer in incoming.buffers:
                    buffer.write_back()

            sends = [ExchangeSend(*slot, raw(array)) for slot, array in zip(out_slots, outgoing, strict=True)]
            receives = [ExchangeRecv(*slot, raw(array)) for slot, array in zip(in_slots, incoming.arrays, strict=True)]
            return NeighborOperation(connections.engine, call, sends, receives, finish)

    def _exchange_objects(self, call: str, data: Sequence[memoryview]) -> list[Any]:
        out_slots, in_slots = self._slots()
        receives = [ExchangeRecv(*slot) for slot in in_slots]
        with self._state.call(call) as connections:
            sends = [ExchangeSend(*slot, each) for slot, each in zip(out_slots, data, strict=True)]
            NeighborOperation(connections.engine, call, sends, receives, _nothing).run()
        return [None if each.memory is None else pickle.loads(each.memory) for each in receives]
