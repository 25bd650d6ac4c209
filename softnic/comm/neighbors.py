"""Neighbourhood collectives: every rank exchanges data with its neighbours in the topology.

A call is one message to each neighbour and one from each, which are all sent at once; no other rank takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softnic.comm import buffers
from softnic.comm.buffers import MessageBuffer, raw
from softnic.comm.collective_args import RECEIVE, SEND
from softnic.comm.errors import ArgumentError
from softnic.comm.info import INFO_NULL, Info
from softnic.comm.neighbor_exchange import ExchangeRecv, ExchangeSend, NeighborOperation
from softnic.comm.p2p_persistent import Prequest
from softnic.comm.pickling import pickle
from softnic.comm.request import Request
from softnic.comm.topologies import CartTopology
from softnic.comm.topology_calls import TopologyCalls

_Blocks = Callable[[int, bool], tuple[list[memoryview], list[MessageBuffer]]]
"""Returns the memory of each neighbour's block, and the buffers that have it, for a number of neighbours."""


def _numbered(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return each rank with the number of its earlier appearances."""
    return [(rank, ranks[:place].count(rank)) for place, rank in enumerate(ranks)]


def _what(writable: bool) -> str:
    return RECEIVE if writable else SEND


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


def _nothing() -> None:
    """Do nothing at the end of an exchange."""


def _named(call: Callable[..., Any], name: str, text: str) -> None:
    """Give a call the name and the docstring that users see."""
    call.__name__, call.__qualname__, call.__doc__ = name, f"NeighborCalls.{name}", text


def _calls(
    name: str, sent: Callable[[Any], _Blocks], received: Callable[[Any], _Blocks], what: str
) -> tuple[Callable[..., None], Callable[..., Request], Callable[..., Prequest]]:
    """Return the blocking, the nonblocking and the persistent call of a collective, which differ in their blocks."""

    def blocking(self: NeighborCalls, sendbuf: Any, recvbuf: Any) -> None:
        with self._state.call(name):
            operation = self._begin_exchange(name, sent(sendbuf), received(recvbuf))
            operation.run()
        operation.result()

    def nonblocking(self: NeighborCalls, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self._begin_exchange(f"I{name.lower()}", sent(sendbuf), received(recvbuf)))

    def persistent(self: NeighborCalls, sendbuf: Any, recvbuf: Any, info: Info = INFO_NULL) -> Prequest:
        del info
        return Prequest.of(lambda: self._begin_exchange(f"{name}_init", sent(sendbuf), received(recvbuf)))

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
        "Neighbor_allgather", _same, _equal, "Send a block to all neighbours, and receive one of each."
    )
    Neighbor_allgatherv, Ineighbor_allgatherv, Neighbor_allgatherv_init = _calls(
        "Neighbor_allgatherv", _same, _varying, "Neighbor_allgather with blocks of any length."
    )
    Neighbor_alltoall, Ineighbor_alltoall, Neighbor_alltoall_init = _calls(
        "Neighbor_alltoall", _equal, _equal, "Send each neighbour its block, and receive one of each."
    )
    Neighbor_alltoallv, Ineighbor_alltoallv, Neighbor_alltoallv_init = _calls(
        "Neighbor_alltoallv", _varying, _varying, "Neighbor_alltoall with blocks of any length."
    )
    Neighbor_alltoallw, Ineighbor_alltoallw, Neighbor_alltoallw_init = _calls(
        "Neighbor_alltoallw", _typed, _typed, "Neighbor_alltoall with blocks of any length and datatype."
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

    def _begin_exchange(self, call: str, sent: _Blocks, received: _Blocks) -> NeighborOperation:
        """Start to exchange blocks with all neighbours."""
        out_slots, in_slots = self._slots()
        with self._state.call(call) as connections:
            outgoing, _ = sent(len(out_slots), False)
            incoming, wholes = received(len(in_slots), True)

            def finish() -> None:
                for whole in wholes:
                    whole.write_back()

            sends = [ExchangeSend(*slot, data) for slot, data in zip(out_slots, outgoing, strict=True)]
            receives = [ExchangeRecv(*slot, data) for slot, data in zip(in_slots, incoming, strict=True)]
            return NeighborOperation(connections.engine, call, sends, receives, finish)

    def _exchange_objects(self, call: str, data: Sequence[memoryview]) -> list[Any]:
        out_slots, in_slots = self._slots()
        receives = [ExchangeRecv(*slot) for slot in in_slots]
        with self._state.call(call) as connections:
            sends = [ExchangeSend(*slot, each) for slot, each in zip(out_slots, data, strict=True)]
            NeighborOperation(connections.engine, call, sends, receives, _nothing).run()
        return [None if each.memory is None else pickle.loads(each.memory) for each in receives]
