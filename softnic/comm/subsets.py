"""Communicators of some of the ranks of another, by mpi4py's names: Split, Dup, Create, Create_group.

Each has its own connections over the same NICs, so calls in one do not wait for another. The ranks exchange the
addresses on which they listen over the existing communicator, and then connect as at the start of the job.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Self

from softnic.comm import buffers, messages
from softnic.comm.bootstrap.launch import NOWHERE
from softnic.comm.connections import CommConnections
from softnic.comm.errors import CommError
from softnic.comm.matching import OWN_TAGS, PendingRecv
from softnic.comm.objects import ObjectCollectives, gather_objects
from softnic.comm.p2p import UNDEFINED, PointToPoint
from softnic.comm.public_names import PublicNames

Address = tuple[str, int]


class Group(PublicNames):
    """Ordered ranks of a communicator.

    Parameters
    ----------
    ranks : iterable of int
        Ranks of the communicator, in the order of the group.
    own : int
        Rank of this process in the communicator.
    """

    def __init__(self, ranks: Iterable[int], own: int) -> None:
        self.ranks = tuple(ranks)
        self._own = own

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    def Get_rank(self) -> int:
        """Return the position of this process in the group, or MPI.UNDEFINED."""
        return self.ranks.index(self._own) if self._own in self.ranks else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Incl(self, ranks: Sequence[int]) -> Group:
        """Return the group of the `ranks` of this group, in this order. Raises ValueError."""
        places = [buffers.rank_in(place, len(self.ranks), "ranks") for place in ranks]
        if len(set(places)) < len(places):
            raise ValueError(f"a group has each rank once, not {list(ranks)}")
        return Group((self.ranks[place] for place in places), self._own)

    def Excl(self, ranks: Sequence[int]) -> Group:
        """Return the group without the `ranks` of this group. Raises ValueError."""
        left_out = {buffers.rank_in(place, len(self.ranks), "ranks") for place in ranks}
        return Group((rank for place, rank in enumerate(self.ranks) if place not in left_out), self._own)

    def __repr__(self) -> str:
        return f"<Group: ranks {list(self.ranks)}>"


class Subsets(PointToPoint, ObjectCollectives):
    """Calls that make communicators. They return None, which is MPI.COMM_NULL, on ranks that get none."""

    def Get_group(self) -> Group:
        """Return the group of all ranks."""
        return Group(range(self.size), self.rank)

    def Dup(self, info: Any = None) -> Self:  # noqa: ARG002
        """Return a communicator of the same ranks with its own connections. `info` is accepted and ignored."""
        made = self._split("Dup", 0, 0)
        assert made is not None
        return made

    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Self | None:
        """Return a communicator of the ranks that pass the same color, ordered by key, then by rank.

        Ranks that pass MPI.UNDEFINED as `color` get None. All ranks call this.
        """
        return self._split("Split", color, key)

    def Create(self, group: Group) -> Self | None:
        """Return a communicator of the ranks of `group`, None on others. All ranks call this with the same group."""
        place = group.Get_rank()
        return self._split("Create", UNDEFINED if place == UNDEFINED else 0, max(place, 0))

    def Create_group(self, group: Group, tag: int = 0) -> Self | None:
        """Return a communicator of the ranks of `group`, None on others. Only its ranks call this.

        Threads may call it at the same time with different values of `tag`.
        """
        if group.Get_rank() == UNDEFINED:
            return None
        with ExitStack() as stack:
            with self._state.call("Create_group") as connections:
                listener, own = stack.enter_context(self._listening(connections))
                own_tag = OWN_TAGS + buffers.tag_of(tag)
                addresses = self._exchange_addresses(connections, group, own_tag, own)
                made = self._new_communicator("Create_group", group.ranks, addresses, listener)
            return self._connect("Create_group", made)

    def _split(self, call: str, color: int, key: int) -> Self | None:
        with ExitStack() as stack:
            with self._state.call(call) as connections:
                listener, own = stack.enter_context(self._listening(connections))
                if color != UNDEFINED and color < 0:
                    raise ValueError(f"color is {color}: 0 or more is expected, or MPI.UNDEFINED")
                given: list[tuple[int, int, Address]] = gather_objects(
                    connections, call, (int(color), int(key), own), range(self.size)
                )
                if color == UNDEFINED:
                    return None
                members = sorted((key, rank) for rank, (theirs, key, _) in enumerate(given) if theirs == color)
                ranks = [rank for _, rank in members]
                made = self._new_communicator(call, ranks, [given[rank][2] for rank in ranks], listener)
            return self._connect(call, made)

    @contextmanager
    def _listening(self, connections: CommConnections) -> Iterator[tuple[socket.socket | None, Address]]:
        """Listen for the ranks of a new communicator; yield the listener and its address. It is closed at the end."""
        if self.size == 1:
            yield None, NOWHERE
            return
        transport = connections.transport
        assert transport is not None
        listener = transport.listen((transport.address(), 0), messages.CHANNELS * self.size)
        try:
            host, port = listener.getsockname()
            yield listener, (host, port)
        finally:
            listener.close()

    def _exchange_addresses(self, connections: CommConnections, group: Group, tag: int, own: Address) -> list[Address]:
        """Return the addresses of all ranks of a group, exchanged through its first rank."""
        first, *others = group.ranks
        if self.rank != first:
            self._send_object(connections, first, tag, own)
            received: list[Address] = self._receive_object(connections, first, tag)
            return received
        addresses = [own, *(self._receive_object(connections, rank, tag) for rank in others)]
        for rank in others:
            self._send_object(connections, rank, tag, addresses)
        return addresses

    def _send_object(self, connections: CommConnections, rank: int, tag: int, what: Any) -> None:
        data = memoryview(pickle.dumps(what))
        connections.matcher.send(rank, messages.Announce(tag, data.nbytes, ""), data)

    def _receive_object(self, connections: CommConnections, rank: int, tag: int) -> Any:
        place: list[memoryview] = []

        def room(message: Any) -> memoryview:
            place.append(memoryview(bytearray(message.announce.size)))
            return place[0]

        connections.matcher.receive(PendingRecv(rank, tag, room))
        return pickle.loads(place[0])

    def _new_communicator(self, call: str, ranks: Sequence[int], addresses: Sequence[Address], listener: Any) -> Self:
        """Return the communicator of these ranks, which are not connected yet."""
        launch = replace(
            self.launch,
            rank=ranks.index(self.rank),
            addresses=tuple((host, port) for host, port in addresses),
            found=f"{call} of a communicator of {self.size}",
        )
        return type(self)(self._state.subset(launch, listener))

    def _connect(self, call: str, made: Self) -> Self:
        """Connect the ranks of the new communicator and return it.

        This is not part of the call on the existing communicator, which continues if this fails. If another rank has
        already ended the new one, for example by an error in its first call, the next call on it raises that error.
        """
        try:
            made.Init()
        except CommError as error:
            if not error.told:
                raise CommError(f"{call} on rank {self.rank}: {error}", rank=error.rank, call=call) from error
        return made
