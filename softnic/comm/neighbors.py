"""Neighbourhood collectives: every rank exchanges data with its neighbours in the topology.

The messages of a call are sent at once, each to its neighbour. A nonblocking call is complete when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from softnic.comm import buffers
from softnic.comm.buffers import MessageBuffer, raw
from softnic.comm.info import INFO_NULL, Info
from softnic.comm.neighbor_exchange import ExchangeRecv, ExchangeSend, exchange
from softnic.comm.pickling import pickle
from softnic.comm.request import Request
from softnic.comm.topologies import CartTopology
from softnic.comm.topology_calls import TopologyCalls

_SEND, _RECEIVE = "the send buffer", "the receive buffer"


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

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block to all neighbours, and receive one of each."""
        self._exchange_buffers("Neighbor_allgather", _same(sendbuf), _equal(recvbuf))

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor_allgather with blocks of any length."""
        self._exchange_buffers("Neighbor_allgatherv", _same(sendbuf), _varying(recvbuf))

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send each neighbour its block, and receive one of each."""
        self._exchange_buffers("Neighbor_alltoall", _equal(sendbuf), _equal(recvbuf))

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor_alltoall with blocks of any length."""
        self._exchange_buffers("Neighbor_alltoallv", _varying(sendbuf), _varying(recvbuf))

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor_alltoall with blocks of any length and datatype."""
        self._exchange_buffers("Neighbor_alltoallw", _typed(sendbuf), _typed(recvbuf))

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Make the call Neighbor_allgather, and return a complete Request."""
        self.Neighbor_allgather(sendbuf, recvbuf)
        return Request()

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Make the call Neighbor_allgatherv, and return a complete Request."""
        self.Neighbor_allgatherv(sendbuf, recvbuf)
        return Request()

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Make the call Neighbor_alltoall, and return a complete Request."""
        self.Neighbor_alltoall(sendbuf, recvbuf)
        return Request()

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Make the call Neighbor_alltoallv, and return a complete Request."""
        self.Neighbor_alltoallv(sendbuf, recvbuf)
        return Request()

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Make the call Neighbor_alltoallw, and return a complete Request."""
        self.Neighbor_alltoallw(sendbuf, recvbuf)
        return Request()

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """Send an object to all neighbours, and return theirs."""
        data = memoryview(pickle.dumps(sendobj))
        return self._exchange_objects("neighbor_allgather", [data] * self.outdegree)

    def neighbor_alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send each neighbour its object, and return theirs."""
        data = [memoryview(pickle.dumps(each)) for each in sendobj]
        if len(data) != self.outdegree:
            raise ValueError(f"neighbor_alltoall: {len(data)} objects for {self.outdegree} neighbours")
        return self._exchange_objects("neighbor_alltoall", data)

    def _persistent(self, sendbuf: Any, recvbuf: Any, info: Info = INFO_NULL) -> NoReturn:
        """Raise NotImplementedError: start a neighbourhood collective by its own call each time."""
        del sendbuf, recvbuf, info
        raise NotImplementedError("there are no persistent neighbourhood collectives: call Ineighbor_... each time")

    Neighbor_allgather_init = Neighbor_allgatherv_init = _persistent
    Neighbor_alltoall_init = Neighbor_alltoallv_init = Neighbor_alltoallw_init = _persistent

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

    def _exchange_buffers(self, call: str, sent: _Blocks, received: _Blocks) -> None:
        """Exchange blocks with all neighbours."""
        out_slots, in_slots = self._slots()
        with self._state.call(call) as connections:
            outgoing = sent(len(out_slots), False)
            incoming, wholes = received(len(in_slots), True)
            exchange(
                connections,
                [ExchangeSend(*slot, data) for slot, data in zip(out_slots, outgoing[0], strict=True)],
                [ExchangeRecv(*slot, data) for slot, data in zip(in_slots, incoming, strict=True)],
            )
            for whole in wholes:
                whole.write_back()

    def _exchange_objects(self, call: str, data: Sequence[memoryview]) -> list[Any]:
        out_slots, in_slots = self._slots()
        receives = [ExchangeRecv(*slot) for slot in in_slots]
        with self._state.call(call) as connections:
            sends = [ExchangeSend(*slot, each) for slot, each in zip(out_slots, data, strict=True)]
            exchange(connections, sends, receives)
        return [None if each.memory is None else pickle.loads(each.memory) for each in receives]


_Blocks = Callable[[int, bool], tuple[list[memoryview], list[MessageBuffer]]]
"""Returns the memory of each neighbour's block, and the buffers that have it, for a number of neighbours."""


def _numbered(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return each rank with the number of its earlier appearances."""
    return [(rank, ranks[:place].count(rank)) for place, rank in enumerate(ranks)]


def _what(writable: bool) -> str:
    return _RECEIVE if writable else _SEND


def _same(spec: Any) -> _Blocks:
    """All neighbours get the same block."""

    def blocks(count: int, writable: bool) -> tuple[list[memoryview], list[MessageBuffer]]:
        whole = buffers.message(spec, writable=writable, what=_what(writable))
        return [raw(whole.array)] * count, [whole]

    return blocks


def _equal(spec: Any) -> _Blocks:
    """Blocks are equal."""

    def blocks(count: int, writable: bool) -> tuple[list[memoryview], list[MessageBuffer]]:
        if not count:
            return [], []
        whole = buffers.message(spec, writable=writable, what=_what(writable), blocks=count)
        each = buffers.blocks_for(whole.array, count, _what(writable)) * whole.array.itemsize
        data = raw(whole.array)
        return [data[place * each : (place + 1) * each] for place in range(count)], [whole]

    return blocks


def _varying(spec: Any) -> _Blocks:
    """Blocks have their own counts."""

    def blocks(count: int, writable: bool) -> tuple[list[memoryview], list[MessageBuffer]]:
        found = buffers.vector(spec, count, writable=writable, what=_what(writable)) if count else []
        return [raw(each.array) for each in found], found

    return blocks


def _typed(spec: Any) -> _Blocks:
    """Blocks have their own counts and datatypes."""

    def blocks(count: int, writable: bool) -> tuple[list[memoryview], list[MessageBuffer]]:
        found = buffers.vector_w(spec, count, writable=writable, what=_what(writable)) if count else []
        return [raw(each.array) for each in found], found

    return blocks
