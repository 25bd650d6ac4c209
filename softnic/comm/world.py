"""The life of a communicator's connections: met at the first call, broken by the first error, left at the end.

One rule for every error inside a call, whosever it is: the other ranks are told, and the communicator is of no use
from then on, on any rank. For after a call that only some ranks made nobody knows what the bytes on the connections
belong to; and a rank that would wait for ever gets an error instead.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from softnic import codecs, memory
from softnic.comm import elements, nics, wire
from softnic.comm.buffers import Array
from softnic.comm.channel import Mesh, Peer
from softnic.comm.collective import Runner
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.group import Failure, Group, Owner
from softnic.comm.launch import Launch
from softnic.comm.matching import Matcher
from softnic.comm.nics import SharedNic
from softnic.comm.operations import Op
from softnic.comm.progress import Progress
from softnic.comm.rendezvous import Rendezvous
from softnic.comm.scratch import Scratch
from softnic.comm.transport import Nic, Transport

_FAREWELL_S = 0.5
"""How long a rank tries to tell another one, whose connection is full, that it ends."""


class Session:
    """The connections, once they stand. A single rank has none, and makes every call alone."""

    def __init__(self, launch: Launch, transport: Transport | None, listener: socket.socket | None) -> None:
        mesh: Mesh = {}
        if launch.size > 1:
            transport = transport or Transport()
            mesh = Rendezvous(launch, transport, listener).run()
        self._mesh = mesh
        self.progress = Progress(launch.rank, mesh, transport)
        self.matcher = Matcher(self.progress)
        self.runner = Runner(self.progress)
        self.transport = transport
        self._scratch: Array = np.empty(0, np.uint8)
        self.nic: Nic | None = None
        self.group: Group | None = None
        """What the NIC executes; None: it is alone, or there is no NIC."""
        self.pool = Scratch()
        self._table_codec = "raw"

    def join(self, owner: Owner) -> None:
        """Hands the NIC its connections. Returns when all ranks have done so, and nothing that a NIC sends can reach a
        process. Raises OSError and CommError."""
        if not self._mesh or self.transport is None:
            return
        tagged = next(iter(self.progress.peers.values())).channel(tagged=True).connection
        self._table_codec = self.transport.default_codec(tagged)  # later calls may set others on this connection
        words, data = ({r: links[channel] for r, links in self._mesh.items()} for channel in (wire.WORDS, wire.DATA))
        for connection in words.values():
            self.transport.keep_alive(connection)
        self.nic = self.transport.join(self.progress.rank, words, data)
        leases = [*words.values(), *data.values()]
        if self.nic is None:
            for connection in leases:
                connection.close()
        else:
            self.group = Group(self.progress.rank, self.nic.connection, self.nic.pulse(), leases, owner)
            self.progress.pulse = self.nic.pulse()
        peers = self.progress.peers.values()
        for peer in peers:
            self.progress.post(peer, wire.Joined())
        self.progress.run(lambda: all(self._has_joined(peer) for peer in peers))

    def _has_joined(self, peer: Peer) -> bool:
        if peer.absent and not peer.joined:
            raise self.progress.missing(peer, "taking part")
        return peer.joined

    def hang_up(self, why: Failure) -> None:
        """Nothing more is sent, and the NIC executes nothing any more."""
        self.progress.hang_up()
        if self.group is not None:
            self.group.close(why)

    def close(self, why: Failure) -> None:
        """Closes all connections."""
        if self.group is not None:
            self.group.close(why)
        self.progress.close()
        for connections in self._mesh.values():
            for connection in connections:
                connection.close()

    def head(
        self,
        call: str,
        array: Array | None = None,
        op: Op | None = None,
        root: int = -1,
        codec: str = "",
        counts: tuple[int, ...] = (),
        algorithm: str = "",
    ) -> wire.Head:
        """The Head of the next collective call, with what all ranks must agree on."""
        self.matcher.number += 1
        size, dtype = (0, "") if array is None else (array.size, elements.name_of(array.dtype))
        name = op.name if op else ""
        return wire.Head(self.matcher.number, call, size, dtype, name, root, codec, counts, algorithm)

    def scratch(self, like: Array, dtype: np.dtype[Any] | None = None) -> Array:
        """An array like the given one, or as long and of another type, with any contents, until the next call. Its
        memory is kept for later ones.

        Registered, if the given one is.
        """
        dtype = dtype or like.dtype
        size = like.size * dtype.itemsize
        registered = memory.is_registered(like)
        if self._scratch.nbytes < size or (registered and not memory.is_registered(self._scratch)):
            self._scratch = memory.empty(size, np.uint8) if registered else np.empty(size, np.uint8)
        return self._scratch[:size].view(dtype)

    def default_codec(self) -> str:
        """What the NIC's own table says, as all ranks' tables should."""
        if not self._table_codec:
            raise ValueError("this NIC compresses nothing by itself: name a codec, as in codec='bounded:10'")
        return self._table_codec


class Found(NamedTuple):
    """Where the ranks are: the launch with their addresses, and this one's listener there."""

    launch: Launch
    transport: Transport | None = None
    listener: socket.socket | None = None
    nic: SharedNic | None = None
    """Of the host, where it started by itself."""


Find = Callable[[Launch], AbstractContextManager[Found]]
"""What it found may be forgotten when the ranks have met. Raises OSError and CommError."""


class World:
    """All ranks of one job as this one sees them."""

    def __init__(
        self,
        launch: Launch | Callable[[], Launch],
        transport: Transport | None = None,
        listener: socket.socket | None = None,
        *,
        find: Find | None = None,
    ) -> None:
        self._launch = launch
        self._transport = transport
        self._listener = listener
        self._find = find
        """Finds out where the ranks are, when they meet. None: the launch says it."""
        self._nic: SharedNic | None = None
        self._session: Session | None = None
        self._codec: codecs.Codec | None = None
        self._ended = ""
        """Why no call can be made any more."""
        self._at_fault: int | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()
        """Whose the connections are: a process forked from it has them too, and must not speak on them."""

    @property
    def launch(self) -> Launch:
        """Read from the environment when it is first asked for."""
        if not isinstance(self._launch, Launch):
            self._launch = self._launch()
        return self._launch

    @property
    def connected(self) -> bool:
        return self._session is not None

    @property
    def executed(self) -> bool:
        return self._session is not None and self._session.group is not None

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    @contextmanager
    def call(self, name: str) -> Iterator[Session]:
        """A communication call. Makes the connections if there are none yet; an error ends the communicator."""
        where = f"{name} on rank {self.launch.rank}"
        with self._lock:
            if os.getpid() != self._process and self._session is not None:
                raise CommError(
                    f"{where}: the connections belong to the process that this one was forked from", call=name
                )
            self._advance_group()
            if self._ended:
                raise CommError(f"{where}: the communicator is no more: {self._ended}", rank=self._at_fault, call=name)
            try:
                if self._session is None:
                    self._process = os.getpid()
                    self._session = self._meet()
                    _open_worlds.add(self)
                    self._session.join(self)
                yield self._session
                if self._ended:  # another thread has seen a request fail
                    self._fail(self._ended, self._at_fault)
            except CommError as error:
                told = error.told
                failure = CommError(f"{where}: {error}", rank=error.rank, call=name)
                self._fail(told or str(failure), error.rank)
                raise failure from error.__cause__
            except OSError as error:
                failure = CommError(f"{where}: {error}", rank=self.launch.rank, call=name)
                self._fail(str(failure), failure.rank)
                raise failure from error
            except ValueError as error:
                wrong = ArgumentError(f"{where}: {error}", rank=self.launch.rank, call=name)
                self._fail(str(wrong), wrong.rank)
                raise wrong from error
            except BaseException as error:
                self._fail(f"{where}: {type(error).__name__}: {error}", self.launch.rank)
                raise

    def _meet(self) -> Session:
        """Raises OSError and CommError."""
        if self._find is None or self.launch.size == 1:
            return Session(self.launch, self._transport, self._listener)
        with self._find(self.launch) as found:
            self._launch, self._transport, self._listener = found.launch, found.transport, found.listener
            if found.nic is not None:
                self._nic = found.nic
                found.nic.users.add(self)
            return Session(found.launch, found.transport, found.listener)

    def part(self, launch: Launch, listener: socket.socket | None) -> World:
        """The world of some of these ranks, whose addresses are known, on the same NICs."""
        world = World(launch, None if self._session is None else self._session.transport, listener)
        if self._nic is not None:
            world._nic = self._nic
            self._nic.users.add(world)
        return world

    def default_codec(self, session: Session) -> codecs.Codec:
        if self._codec is None:
            self._codec = codecs.get(session.default_codec())
        return self._codec

    def _advance_group(self) -> None:
        """Notices that requests in progress have failed."""
        group = None if self._session is None else self._session.group
        if group is not None and group.pending is not None:
            group.advance()

    def _fail(self, text: str, rank: int | None) -> None:
        self._ended, self._at_fault = text, rank
        if self._session is not None:
            self._session.progress.farewell(wire.Abort(-1 if rank is None else rank, text), _FAREWELL_S)
            self._session.hang_up(Failure(rank, f"the communicator is no more: {text}"))

    def abort(self, text: str) -> None:
        """Ends the communicator on every rank."""
        with self._lock:
            if not self._ended:
                self._fail(text, self.launch.rank)

    def leave(self) -> None:
        """Says that this rank makes no more calls, and closes the connections. Done at exit, if not before.

        What its NIC still executes is given up, which is an error on every rank that waits for it.
        """
        with self._lock:
            session = self._session
            if session is not None:
                self._say_farewell(session)
                self._session = None
                session.close(Failure(self.launch.rank, "the communicator is no more: it was finalized"))
            if self._listener is not None:
                self._listener.close()
            self._ended = self._ended or "it was finalized"

    def _say_farewell(self, session: Session) -> None:
        if self._ended or os.getpid() != self._process:
            return
        self._advance_group()
        frame: wire.Frame = wire.Leave(session.matcher.number)
        if session.group is not None and (left := session.group.pending) is not None:
            rank = self.launch.rank
            frame = wire.Abort(rank, f"rank {rank} has left before its {left.call} was complete")
        if not self._ended:
            session.progress.farewell(frame, _FAREWELL_S)

    # -- what a group tells its owner (softnic/comm/group.py) --------------------------------------------------------

    def explain(self, failure: Failure) -> Failure:
        """What the rank at fault has said about it, if it has: it knows best."""
        session = self._session
        if session is None or self._ended or not self._lock.acquire(blocking=False):
            return failure  # another thread is in a call, and hears it
        try:
            for _ in session.progress.peers:
                try:
                    session.progress.listen()
                except CommError as error:
                    if error.told and str(error).startswith(f"rank {error.rank} says"):
                        return Failure(error.rank, str(error))
        finally:
            self._lock.release()
        return failure

    def lost(self, call: str, failure: Failure) -> None:
        """A request failed, and with it the communicator ends, as it does by an error of any other call."""
        text = f"{call} on rank {self.launch.rank}: {failure.text}"
        if not self._lock.acquire(blocking=False):
            self._ended, self._at_fault = text, failure.rank  # the thread that is in a call does the rest
            return
        try:
            if not self._ended:
                self._fail(text, failure.rank)
        finally:
            self._lock.release()

    def let_go(self) -> None:
        """In a process forked from the connections' own: closes them here, so that they end with that process."""
        if self._session is not None and os.getpid() != self._process:
            self._session.close(Failure(None, ""))


_open_worlds: weakref.WeakSet[World] = weakref.WeakSet()


def _let_go_of_all() -> None:
    for world in list(_open_worlds):
        world.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


@atexit.register
def _leave_all() -> None:
    for world in list(_open_worlds):
        world.leave()
    nics.let_go_of_all()
