"""Communicators of some of the ranks of another, by mpi4py's names: Split, Split_type, Dup, Create, Create_group.

Each has its own connections over the same NICs, so calls in one do not wait for another. The ranks exchange the
addresses on which they listen over the existing communicator, and then connect as at the start of the job.
"""

from __future__ import annotations

import pickle
import platform
import socket
import zlib
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from softnic.comm import messages
from softnic.comm.arrivals import OWN_TAGS, PendingRecv
from softnic.comm.bootstrap.launch import NOWHERE
from softnic.comm.connections import CommConnections
from softnic.comm.errors import CommError, transport_errors
from softnic.mpi import attributes, constants
from softnic.mpi.administration import Administration
from softnic.mpi.arguments import checks
from softnic.mpi.arguments.message_target import BytesTarget
from softnic.mpi.base import Base
from softnic.mpi.collectives.object_exchange import gather_objects
from softnic.mpi.collectives.objects import ObjectCollectives
from softnic.mpi.constants import UNDEFINED
from softnic.mpi.groups import Group
from softnic.mpi.info import INFO_NULL, Info
from softnic.mpi.p2p.calls import PointToPoint
from softnic.mpi.requests.request import Request

Address = tuple[str, int]


class Subsets(PointToPoint, ObjectCollectives, Administration):
    """Calls that make communicators. Ranks that get none get a null one, which equals MPI.COMM_NULL."""

    def Dup(self, info: Info | None = None) -> Self:
        """Return a communicator of the same ranks with its own connections, and with the attributes that are copied.

        Its info is `info`; None: as it is here.
        """
        return self._duplicate("Dup", info)

    def Dup_with_info(self, info: Info) -> Self:
        """Return a duplicate with this info."""
        return self._duplicate("Dup_with_info", info)

    def Clone(self) -> Self:
        """Return a duplicate."""
        return self._duplicate("Clone", None)

    def Idup(self, info: Info | None = None) -> tuple[Self, Request]:
        """Return a duplicate, with `info` as in Dup, and a Request, which is complete."""
        return self._duplicate("Idup", info), Request()

    def Idup_with_info(self, info: Info) -> tuple[Self, Request]:
        """Return a duplicate with this info and a Request, which is complete."""
        return self._duplicate("Idup_with_info", info), Request()

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Return a communicator of the ranks that pass the same color, ordered by key, then by rank.

        Ranks that pass MPI.UNDEFINED as `color` get a null one. All ranks call this.
        """
        return self._split("Split", color, key)

    def Split_type(self, split_type: int, key: int = 0, info: Info = INFO_NULL) -> Any:
        """Return a communicator of the ranks on one host, ordered by key, then by rank.

        Parameters
        ----------
        split_type
            MPI.COMM_TYPE_SHARED; MPI.COMM_TYPE_HW_GUIDED or RESOURCE_GUIDED, with the kind of host in `info`, of which
            mpi_shared_memory is known; UNDEFINED for no communicator. Ranks that ask for anything else get a null one.
        """
        guided = split_type in (constants.COMM_TYPE_HW_GUIDED, constants.COMM_TYPE_RESOURCE_GUIDED)
        wanted = split_type == constants.COMM_TYPE_SHARED
        wanted = wanted or (guided and info is not None and info.get("mpi_hw_resource_type") == "mpi_shared_memory")
        return self._split("Split_type", _host_number() if wanted else UNDEFINED, key)

    def Create(self, group: Group) -> Any:
        """Return a communicator of the ranks of `group`, a null one on others. All ranks call this.

        Groups that have no rank in common make a communicator each.
        """
        self._properties()
        place = group.Get_rank()
        if place == UNDEFINED:
            return self._split("Create", UNDEFINED, 0)
        return self._split("Create", min(group.ranks_among(self._state.processes)), place)

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """Return a communicator of the ranks of `group`, a null one on others. Only its ranks call this.

        Threads may call it at the same time with different values of `tag`.
        """
        self._properties()
        if group.Get_rank() == UNDEFINED:
            return self.subset_class()
        ranks = group.ranks_among(self._state.processes)
        with ExitStack() as stack:
            with self._state.call("Create_group") as connections:
                listener, own = self._listen(connections, stack)
                own_tag = OWN_TAGS + checks.tag_of(tag)
                addresses = self._exchange_addresses(connections, ranks, own_tag, own)
                made = self._new_communicator("Create_group", ranks, addresses, listener)
            self._connect("Create_group", made)
            stack.pop_all()  # the listener is the new communicator's
            return made

    def _duplicate(self, call: str, info: Info | None) -> Self:
        old = self._properties()
        made = type(self)._named(self._split(call, 0, 0)._state)
        new = made._state.properties
        new.topology, new.named = old.topology, old.named
        new.info = dict(old.info if info is None else info.items())
        attributes.copy_all(self, old.attributes, new.attributes)
        return made

    def _split(self, call: str, color: int, key: int) -> Base:
        with ExitStack() as stack:
            with self._state.call(call) as connections:
                listener, own = self._listen(connections, stack)
                if color != UNDEFINED and color < 0:
                    raise ValueError(f"color is {color}: 0 or more is expected, or MPI.UNDEFINED")
                given: list[tuple[int, int, Address]] = gather_objects(
                    connections, call, (int(color), int(key), own), range(self.size)
                )
                if color == UNDEFINED:
                    return self.subset_class()
                members = sorted((key, rank) for rank, (theirs, key, _) in enumerate(given) if theirs == color)
                ranks = [rank for _, rank in members]
                made = self._new_communicator(call, ranks, [given[rank][2] for rank in ranks], listener)
            self._connect(call, made)
            stack.pop_all()  # the listener is the new communicator's
            return made

    def _listen(
        self, connections: CommConnections, until: ExitStack, backlog: int | None = None
    ) -> tuple[socket.socket | None, Address]:
        """Listen for the ranks of a new communicator; return the listener, which `until` closes, and its address.

        `backlog`: of the listener. None: for the connections of the ranks of this communicator.
        """
        if self.size == 1:
            return None, NOWHERE
        transport = connections.transport
        assert transport is not None
        backlog = messages.CHANNELS * self.size if backlog is None else backlog
        with transport_errors():
            listener = transport.listen((transport.address(), 0), backlog)
            until.callback(listener.close)
            host, port = listener.getsockname()
        return listener, (host, port)

    def _exchange_addresses(
        self, connections: CommConnections, ranks: Sequence[int], tag: int, own: Address
    ) -> list[Address]:
        """Return the addresses of some ranks, exchanged through the first of them."""
        first, *others = ranks
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
        target = BytesTarget()
        connections.matcher.receive(PendingRecv(rank, tag, target.place))
        assert target.memory is not None
        return pickle.loads(target.memory)

    def _new_communicator(self, call: str, ranks: Sequence[int], addresses: Sequence[Address], listener: Any) -> Base:
        """Return the communicator of these ranks, which are not connected yet."""
        launch = replace(
            self.launch,
            rank=ranks.index(self.rank),
            addresses=tuple((host, port) for host, port in addresses),
            found=f"{call} of a communicator of {self.size}",
        )
        return self.subset_class(self._state.subset(launch, ranks, listener))

    def _connect(self, call: str, made: Base) -> None:
        """Connect the ranks of the new communicator, as far as they do so at the start.

        This is not part of the call on the existing communicator, which continues if this fails. If another rank has
        already ended the new one, for example by an error in its first call, the next call on it raises that error.
        """
        try:
            made.Init()
        except CommError as error:
            if not error.told:
                raise CommError(f"{call} on rank {self.rank}: {error}", rank=error.rank, call=call) from error


def _host_number() -> int:
    """Return a number that processes of one host have in common."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return zlib.crc32(f"{boot}{platform.node()}".encode()) & 0x7FFFFFFF
