"""Communicators of some of the ranks of another, by mpi4py's names: Split, Dup, Create, Create_group.

Each gets connections of its own, over the same NICs: what is called in one does not wait for another. The ranks tell
each other, over the communicator that they have in common, where they listen for the new one; then they meet as always.
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
    """Ranks of a communicator, in an order of their own. `own` is this process's rank there."""

    def __init__(self, ranks: Iterable[int], own: int) -> None:
        self.ranks = tuple(ranks)
        self._own = own

    def Get_size(self) -> int:
        return len(self.ranks)

    def Get_rank(self) -> int:
        """This process's place in the group; MPI.UNDEFINED if it has none."""
        return self.ranks.index(self._own) if self._own in self.ranks else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Incl(self, ranks: Sequence[int]) -> Group:
        """Those at these places, in this order. Raises ValueError."""
        places = [buffers.rank_in(place, len(self.ranks), "ranks") for place in ranks]
        if len(set(places)) < len(places):
            raise ValueError(f"a group has each rank once, not {list(ranks)}")
        return Group((self.ranks[place] for place in places), self._own)

    def Excl(self, ranks: Sequence[int]) -> Group:
        """All but those at these places. Raises ValueError."""
        left_out = {buffers.rank_in(place, len(self.ranks), "ranks") for place in ranks}
        return Group((rank for place, rank in enumerate(self.ranks) if place not in left_out), self._own)

    def __repr__(self) -> str:
        return f"<Group: ranks {list(self.ranks)}>"


class Subsets(PointToPoint, ObjectCollectives):
    """The calls that make communicators. Where a rank gets none, they return None, as MPI.COMM_NULL is."""

    def Get_group(self) -> Group:
        return Group(range(self.size), self.rank)

    def Dup(self, info: Any = None) -> Self:  # noqa: ARG002
        """The same ranks, with connections of their own. `info` is mpi4py's, hints that there are none of here."""
        made = self._split("Dup", 0, 0)
        assert made is not None
        return made

    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Self | None:
        """The ranks that give the same color, ordered by key, then by rank here. None for those that give
        MPI.UNDEFINED. All ranks call this."""
        return self._split("Split", color, key)

    def Create(self, group: Group) -> Self | None:
        """The ranks of a group, in its order; None for all others. All ranks call this, with the same group."""
        place = group.Get_rank()
        return self._split("Create", UNDEFINED if place == UNDEFINED else 0, max(place, 0))

    def Create_group(self, group: Group, tag: int = 0) -> Self | None:
        """The ranks of a group, in its order. Only they call this; with different tags, threads may do so at the same
        time. None where this rank is not one of them."""
        if group.Get_rank() == UNDEFINED:
            return None
        with ExitStack() as stack:
            with self._state.call("Create_group") as connections:
                listener, own = stack.enter_context(self._listening(connections))
                own_tag = OWN_TAGS + buffers.tag_of(tag)
                addresses = self._tell_each_other(connections, group, own_tag, own)
                made = self._made("Create_group", group.ranks, addresses, listener)
            return self._met("Create_group", made)

    def _split(self, call: str, color: int, key: int) -> Self | None:
        with ExitStack() as stack:
            with self._state.call(call) as connections:
                listener, own = stack.enter_context(self._listening(connections))
                if color != UNDEFINED and color < 0:
                    raise ValueError(f"color is {color}: 0 or more is expected, or MPI.UNDEFINED")
                said: list[tuple[int, int, Address]] = gather_objects(
                    connections, call, (int(color), int(key), own), range(self.size)
                )
                if color == UNDEFINED:
                    return None
                members = sorted((key, rank) for rank, (theirs, key, _) in enumerate(said) if theirs == color)
                ranks = [rank for _, rank in members]
                made = self._made(call, ranks, [said[rank][2] for rank in ranks], listener)
            return self._met(call, made)

    @contextmanager
    def _listening(self, connections: CommConnections) -> Iterator[tuple[socket.socket | None, Address]]:
        """A listener for the ranks to come, and its address. It is closed unless somebody else has closed it."""
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

    def _tell_each_other(self, connections: CommConnections, group: Group, tag: int, own: Address) -> list[Address]:
        """Through the group's first rank."""
        first, *others = group.ranks
        if self.rank != first:
            self._say(connections, first, tag, own)
            told: list[Address] = self._hear(connections, first, tag)
            return told
        addresses = [own, *(self._hear(connections, rank, tag) for rank in others)]
        for rank in others:
            self._say(connections, rank, tag, addresses)
        return addresses

    def _say(self, connections: CommConnections, rank: int, tag: int, what: Any) -> None:
        data = memoryview(pickle.dumps(what))
        connections.matcher.send(rank, messages.Announce(tag, data.nbytes, ""), data)

    def _hear(self, connections: CommConnections, rank: int, tag: int) -> Any:
        place: list[memoryview] = []

        def room(message: Any) -> memoryview:
            place.append(memoryview(bytearray(message.announce.size)))
            return place[0]

        connections.matcher.receive(PendingRecv(rank, tag, room))
        return pickle.loads(place[0])

    def _made(self, call: str, ranks: Sequence[int], addresses: Sequence[Address], listener: Any) -> Self:
        """The communicator of these ranks of this one, which have yet to meet."""
        launch = replace(
            self.launch,
            rank=ranks.index(self.rank),
            addresses=tuple((host, port) for host, port in addresses),
            found=f"{call} of a communicator of {self.size}",
        )
        return type(self)(self._state.subset(launch, listener))

    def _met(self, call: str, made: Self) -> Self:
        """The new communicator, when its ranks have met.

        This is no part of the call on the communicator at hand, which goes on whatever becomes of the new one. Where
        another rank has ended that already, perhaps by an error in its first call, the next call on it says so.
        """
        try:
            made.Init()
        except CommError as error:
            if not error.told:
                raise CommError(f"{call} on rank {self.rank}: {error}", rank=error.rank, call=call) from error
        return made
