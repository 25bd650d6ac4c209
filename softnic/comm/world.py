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
from contextlib import contextmanager
from typing import Any

import numpy as np

from softnic import codecs, memory
from softnic.comm import elements, wire
from softnic.comm.buffers import Array
from softnic.comm.channel import Mesh
from softnic.comm.collective import Runner
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.launch import Launch
from softnic.comm.matching import Matcher
from softnic.comm.operations import Op
from softnic.comm.progress import Progress
from softnic.comm.rendezvous import Rendezvous
from softnic.comm.transport import Transport

_FAREWELL_S = 0.5
"""How long a rank tries to tell another one, whose connection is full, that it ends."""


class Session:
    """The connections, once they stand. A single rank has none, and makes every call alone."""

    def __init__(self, launch: Launch, transport: Transport | None, listener: socket.socket | None) -> None:
        mesh: Mesh = {}
        if launch.size > 1:
            transport = transport or Transport()
            mesh = Rendezvous(launch, transport, listener).run()
        self.progress = Progress(launch.rank, mesh, transport)
        self.matcher = Matcher(self.progress)
        self.runner = Runner(self.progress)
        self._transport = transport
        self._scratch: Array = np.empty(0, np.uint8)

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
        if self._transport is None or not self.progress.peers:
            return "raw"
        peer = next(iter(self.progress.peers.values()))
        codec = self._transport.default_codec(peer.channel(tagged=True).connection)
        if not codec:
            raise ValueError("this NIC compresses nothing by itself: name a codec, as in codec='bounded:10'")
        return codec


class World:
    """All ranks of one job as this one sees them."""

    def __init__(
        self,
        launch: Launch | Callable[[], Launch],
        transport: Transport | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self._launch = launch
        self._transport = transport
        self._listener = listener
        self._session: Session | None = None
        self._codec: codecs.Codec | None = None
        self._ended = ""
        """Why no call can be made any more."""
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
            if self._ended:
                raise CommError(f"{where}: the communicator is no more: {self._ended}", call=name)
            try:
                if self._session is None:
                    self._process = os.getpid()
                    self._session = Session(self.launch, self._transport, self._listener)
                    _open_worlds.add(self)
                yield self._session
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

    def default_codec(self, session: Session) -> codecs.Codec:
        if self._codec is None:
            self._codec = codecs.get(session.default_codec())
        return self._codec

    def _fail(self, text: str, rank: int | None) -> None:
        self._ended = text
        if self._session is not None:
            self._session.progress.farewell(wire.Abort(-1 if rank is None else rank, text), _FAREWELL_S)
            self._session.progress.hang_up()

    def abort(self, text: str) -> None:
        """Ends the communicator on every rank."""
        with self._lock:
            if not self._ended:
                self._fail(text, self.launch.rank)

    def leave(self) -> None:
        """Says that this rank makes no more calls, and closes the connections. Done at exit, if not before."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                if not self._ended and os.getpid() == self._process:
                    session.progress.farewell(wire.Leave(session.matcher.number), _FAREWELL_S)
                session.progress.close()
            if self._listener is not None:
                self._listener.close()
            self._ended = self._ended or "it was finalized"


_open_worlds: weakref.WeakSet[World] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    for world in list(_open_worlds):
        world.leave()
