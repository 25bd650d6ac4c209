"""Ports: processes that do not belong to one MPI.COMM_WORLD meet, by MPI's Open_port, Accept, Connect and Join.

A port is an address at which one process listens on its NIC; its name is HOST:PORT. The roots of the two communicators
talk over one connection: each sends a Party, which says where its ranks listen. Then the ranks of both connect as those
of one communicator, which is one of two groups for the program, as after Create_intercomm.

    port = MPI.Open_port(MPI.Info.Create({"ip_port": "7000"}))     # without the info, any free port
    newcomer = MPI.COMM_SELF.Accept(port)
    both = newcomer.Merge()                                        # one group, the newcomer's rank 1

and the newcomer: `MPI.COMM_SELF.Connect("10.77.0.1:7000").Merge(high=True)`.
"""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from softnic.collectives import framing
from softnic.comm import messages
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.error_classes import ERR_INFO_VALUE, ERR_PORT
from softnic.comm.errors import ArgumentError, CommError, transport_errors
from softnic.comm.transport import Transport
from softnic.mpi import handles
from softnic.mpi.arguments.checks import rank_in
from softnic.mpi.info import INFO_NULL, Info
from softnic.mpi.properties import InterGroups

if TYPE_CHECKING:
    from softnic.mpi.state import CommunicatorState

_BACKLOG = 64
_LOOK_S = 0.2
"""How often a wait looks whether the communicator and the port are still there."""
_GREETING_S = 5.0
"""Time limit of a process that has connected for its Party."""
_MAX_PARTY_BYTES = 1 << 20
_MOST_BACKLOG = 0xFFFF
_ABSENT = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ENETUNREACH}
Address = tuple[str, int]


class Party(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """What the root of one side says to that of the other."""

    version: int
    addresses: list[Address]
    """Where its ranks listen."""
    epoch: str = ""
    """Random name of the communicator to be, from the side that accepts."""


_decode = msgspec.msgpack.Decoder(Party).decode


@dataclass
class _Port:
    listener: socket.socket
    closed: bool = False


_ports: dict[str, _Port] = {}
"""Open ports of this process, by name."""


def Open_port(info: Info = INFO_NULL) -> str:
    """Open a port at which Accept waits, and return its name, HOST:PORT on the softnic network.

    Parameters
    ----------
    info
        MPI's reserved key `ip_port` chooses the number of the port. Without it, any free one is taken.

    Raises
    ------
    MPI.Exception
        If there is no NIC, or the port is in use.
    """
    text = str(info.get("ip_port") or 0) if info else "0"
    if not (text.isascii() and text.isdecimal() and int(text) < 1 << 16):
        raise ArgumentError(f"ip_port is {text!r}: a number up to 65535 is expected", code=ERR_INFO_VALUE)
    try:
        transport = _transport()
        listener = transport.listen((transport.address(), int(text)), _BACKLOG)
    except OSError as error:
        raise CommError(f"Open_port: {error.strerror or error}", call="Open_port", code=ERR_PORT) from error
    host, port = listener.getsockname()
    _ports[name := f"{host}:{port}"] = _Port(listener)
    return name


def Close_port(port_name: str) -> None:
    """Close a port. An Accept that waits at it raises an error.

    Parameters
    ----------
    port_name
        Of Open_port.
    """
    port = _open_port(port_name, "Close_port")
    port.closed = True
    del _ports[port_name]
    port.listener.close()


def _open_port(name: str, call: str) -> _Port:
    if name not in _ports:
        raise ArgumentError(f"{call}: {name!r} is no port that this process has opened", code=ERR_PORT)
    return _ports[name]


def _world_state() -> CommunicatorState:
    state: CommunicatorState = handles.constant_named("COMM_WORLD")._state
    return state


def _transport() -> Transport:
    """Return what makes connections on this process's NIC."""
    return _world_state().own_transport() or Transport()


class PortCalls:
    """The calls of communicators of one group that meet others at a port."""

    inter_class: ClassVar[Any]

    def Accept(self: Any, port_name: str, info: Info = INFO_NULL, root: int = 0) -> Any:
        """Wait for a group that calls Connect, and return the communicator of this group and that one.

        Parameters
        ----------
        port_name
            Of Open_port on the root; not used on others.
        info
            Ignored.
        root
            The rank at which the others meet.

        Notes
        -----
        It waits until somebody connects, however long that takes, and ends with an error when the port is closed or
        another rank of this communicator is lost. Other calls on this communicator are possible meanwhile.
        """
        del info
        return _Meeting(self, "Accept", root).accept(port_name)

    def Connect(self: Any, port_name: str, info: Info = INFO_NULL, root: int = 0) -> Any:
        """Connect with a group that calls Accept, and return the communicator of this group and that one.

        Parameters
        ----------
        port_name
            HOST:PORT on the root; not used on others.
        info
            Ignored.
        root
            The rank that connects.

        Raises
        ------
        MPI.Exception
            Of the class ERR_PORT, if nobody listens there, or nobody accepts within SOFTNIC_RENDEZVOUS_TIMEOUT.
        """
        del info
        return _Meeting(self, "Connect", root).connect(port_name)


def join(alone: Any, fd: int) -> Any:
    """Return the communicator of this process and the one at the other end of a connected socket.

    Parameters
    ----------
    alone
        MPI.COMM_SELF.
    fd
        File descriptor of the socket, on which nothing else is sent meanwhile. Nothing is left on it.
    """
    name = Open_port()
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            connection.setblocking(True)
            connection.sendall(name.encode() + b"\n")
            theirs = b""
            while not theirs.endswith(b"\n") and len(theirs) < 64:
                if not (byte := connection.recv(1)):
                    raise CommError("Join: the socket was closed", call="Join", code=ERR_PORT)
                theirs += byte
        other = theirs.decode("ascii", "replace").strip()
        return alone.Accept(name) if name < other else alone.Connect(other)
    finally:
        Close_port(name)


class _Meeting:
    """One call of Accept or Connect."""

    def __init__(self, comm: Any, call: str, root: int) -> None:
        self._comm = comm
        self._call = call
        with comm._state.call(call) as connections:
            self._is_root = comm.rank == rank_in(root, comm.size, "root")
            self._progress = connections.progress
        self._root = int(root)
        self._where = f"{call} on rank {comm.rank}"
        base = comm._state
        self._base: CommunicatorState = base if comm.size > 1 or base.own_transport() else _world_state()
        """Whose NIC is used."""

    def accept(self, port_name: str) -> Any:
        """Meet a group that connects."""
        epoch = os.urandom(8).hex()

        def meet(own: list[Address]) -> tuple[list[Address], str]:
            with closing(self._next_guest(_open_port(port_name, self._call))) as guest:
                party = self._receive(guest, _GREETING_S)
                guest.sendall(framing.pack(Party(messages.VERSION, own, epoch)))
            return party.addresses, epoch

        return self._meet(meet, first=True)

    def connect(self, port_name: str) -> Any:
        """Meet a group that accepts."""
        host, _, port = str(port_name).rpartition(":")
        if self._is_root and not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ArgumentError(f"{self._call}: the port {port_name!r} is not HOST:PORT", code=ERR_PORT)

        def meet(own: list[Address]) -> tuple[list[Address], str]:
            with closing(self._dial((host, int(port)))) as host_side:
                host_side.sendall(framing.pack(Party(messages.VERSION, own)))
                party = self._receive(host_side, self._base.launch.timeout_s)
            return party.addresses, party.epoch

        return self._meet(meet, first=False)

    def _meet(self, meet: Any, first: bool) -> Any:
        """Return the communicator with the group that the root meets by `meet`."""
        comm, base = self._comm, self._base
        with ExitStack() as stack:
            with transport_errors():
                listener = stack.enter_context(base.listening(_MOST_BACKLOG))
            host, port = listener.getsockname()
            own = comm.gather((host, port), self._root)
            theirs, epoch, problem = [], "", None
            if self._is_root:
                try:
                    theirs, epoch = meet(own)
                except (CommError, OSError) as error:
                    problem = error
            told = comm.bcast((own, theirs, epoch, "" if problem is None else str(problem)), self._root)
            own, theirs, epoch, text = told
            if isinstance(problem, ArgumentError):
                raise problem
            if text:
                failed = CommError(f"{self._where}: {text}", call=self._call, code=ERR_PORT)
                comm._state.handle(failed)
                raise failed
            made = self._joined(own, theirs, epoch, listener, first)
            stack.pop_all()  # the listener is the new communicator's
        return made

    def _joined(
        self, own: Sequence[Address], theirs: Sequence[Address], epoch: str, listener: socket.socket, first: bool
    ) -> Any:
        """Connect both groups, that which accepts first."""
        comm, here, there = self._comm, len(own), len(theirs)
        groups = InterGroups(0, here, here, there) if first else InterGroups(there, here, 0, there)
        addresses = tuple((host, port) for host, port in ([*own, *theirs] if first else [*theirs, *own]))
        launch: Launch = replace(
            self._base.launch,
            rank=groups.first_local + comm.rank,
            addresses=addresses,
            found="two groups at a port",
            epoch=epoch,
        )
        state = self._base.subset(launch, (), listener)
        mine, others = comm._state.processes, tuple(random.getrandbits(61) | 1 << 61 for _ in theirs)
        state.properties.processes = (*mine, *others) if first else (*others, *mine)
        state.properties.inter, state.properties.named = groups, comm.inter_class
        with state.call(self._call):
            pass
        return comm.inter_class._named(state)

    # -- the root ----------------------------------------------------------------------------------------------------

    def _next_guest(self, port: _Port) -> socket.socket:
        while not port.closed:
            self._look()
            poll = select.poll()
            with suppress(BlockingIOError, ConnectionAbortedError, ValueError):  # ValueError: the port is closed
                poll.register(port.listener, select.POLLIN)
                if poll.poll(_LOOK_S * 1000) and not port.closed:
                    guest, _ = port.listener.accept()
                    guest.setblocking(True)
                    return guest
        raise CommError("the port was closed")

    def _dial(self, address: Address) -> socket.socket:
        place = f"{address[0]}:{address[1]}"
        connection = (self._base.own_transport() or Transport()).connect(address)
        until = time.monotonic() + self._base.launch.timeout_s
        try:
            while not _writable(connection):
                self._look()
                if time.monotonic() > until:
                    raise CommError(f"nobody answers at {place}")
            if error := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                nobody = f"no process has the port {place}" if error in _ABSENT else f"{place}: {os.strerror(error)}"
                raise CommError(nobody)
            connection.setblocking(True)
        except BaseException:
            connection.close()
            raise
        return connection

    def _receive(self, connection: socket.socket, limit_s: float) -> Party:
        """Return the other side's Party."""
        reader: framing.FrameReader[Party] = framing.FrameReader(_decode, "port", _MAX_PARTY_BYTES)
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            self._look()
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            if not poll.poll(_LOOK_S * 1000):
                continue
            data = connection.recv(1 << 16)
            if not data:
                raise CommError("the other side has gone")
            try:
                found = list(reader.feed(data))
            except ValueError as error:
                raise CommError(f"the other side is no port of softnic: {error}") from None
            if found and found[0].version != messages.VERSION:
                raise CommError(f"the other side speaks version {found[0].version}, this one {messages.VERSION}")
            if found:
                return found[0]
        raise CommError(f"the other side has not answered for {limit_s:g} s: is it in {_OTHER[self._call]}?")

    def _look(self) -> None:
        """Raise CommError if this communicator has failed meanwhile."""
        with self._comm._state.call(self._call):
            self._progress.turn()


_OTHER = {"Accept": "Connect", "Connect": "Accept"}


def _writable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return bool(poll.poll(_LOOK_S * 1000))
