"""The life of a communicator's connections: met when the world starts, broken by the first error, left at the end.

The world of a job starts with the first question for a rank or the number of ranks, or with the first call: from then
on a thread joins the other ranks, while the program loads its data. The first call waits for that thread.

One rule for every error inside a call, whosever it is: the other ranks are told, and the communicator is of no use
from then on, on any rank. For after a call that only some ranks made nobody knows what the bytes on the connections
belong to; and a rank that would wait for ever gets an error instead.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from softnic import codecs
from softnic.comm import messages
from softnic.comm.bootstrap import nic_launcher
from softnic.comm.bootstrap.discovery import Discover
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.nic_launcher import NicReference
from softnic.comm.connections import Session
from softnic.comm.errors import ArgumentError, CommError, uncaught
from softnic.comm.offload_queue import Failure
from softnic.comm.transport import Transport

EXIT_S = 5.0
"""How long the end of a program that is still joining waits for the other ranks."""
_FAREWELL_S = 0.5
"""How long a rank tries to tell another one, whose connection is full, that it ends."""


class World:
    """All ranks of one job as this one sees them."""

    def __init__(
        self,
        launch: Launch | Callable[[], Launch],
        transport: Transport | None = None,
        listener: socket.socket | None = None,
        *,
        find: Discover | None = None,
    ) -> None:
        self._launch = launch
        self._transport = transport
        self._listener = listener
        self._find = find
        """Finds out where the ranks are, when they meet. None: the launch says it."""
        self._nic: NicReference | None = None
        self._session: Session | None = None
        self._codec: codecs.Codec | None = None
        self._ended = ""
        """Why no call can be made any more."""
        self._at_fault: int | None = None
        self._met = False
        """The ranks have joined, once."""
        self._lock = threading.RLock()
        self._begun = False
        """It joins the other ranks, or has done so, or has tried to."""
        self._starting = threading.Lock()
        self._early = not isinstance(launch, Launch)
        """Joins when it is asked who it is; other worlds do so at their first call."""
        self._process = os.getpid()
        """Whose the connections are: a process forked from it has them too, and must not speak on them."""
        self.freed = False
        """This rank has left, by Free."""

    @property
    def launch(self) -> Launch:
        """Read from the environment when it is first asked for."""
        if not isinstance(self._launch, Launch):
            self._launch = self._launch()
        return self._launch

    def start(self) -> Launch:
        """Says who this rank is, and begins to join the others if nothing else has."""
        launch = self.launch
        if self._early and not self._begun and launch.size > 1:
            with self._starting:
                if not self._begun and not self._ended:
                    self._begin()
                    threading.Thread(target=self._join, name="softnic-join", daemon=True).start()
        return launch

    def _begin(self) -> None:
        self._begun = True
        self._process = os.getpid()
        _open_worlds.add(self)

    def _join(self) -> None:
        with suppress(Exception), self.call("Init"):  # a failure is kept for the next call
            pass

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
            if self._begun and os.getpid() != self._process and not self._ended:
                raise CommError(
                    f"{where}: the connections belong to the process that this one was forked from", call=name
                )
            self._advance_group()
            if self._ended:
                what = "the communicator is no more" if self._met else "the ranks could not join"
                raise CommError(f"{where}: {what}: {self._ended}", rank=self._at_fault, call=name)
            try:
                if self._session is None:
                    self._begin()
                    self._session = self._meet()
                    self._met = True
                    self._session.join(self)
                yield self._session
                if self._ended:  # another thread has seen a request fail
                    self._fail(self._ended, self._at_fault)
            except CommError as error:
                told = error.told
                failure = CommError(f"{where}: {error}", rank=error.rank, call=name, told=told)
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
                found.nic.use(self)
            return Session(found.launch, found.transport, found.listener, found.presence)

    def part(self, launch: Launch, listener: socket.socket | None) -> World:
        """The world of some of these ranks, whose addresses are known, on the same NICs."""
        world = World(launch, None if self._session is None else self._session.transport, listener)
        if self._nic is not None:
            world._nic = self._nic
            self._nic.use(world)
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
            self._session.progress.farewell(messages.Abort(-1 if rank is None else rank, text), _FAREWELL_S)
            self._session.hang_up(Failure(rank, f"the communicator is no more: {text}"))

    def abort(self, text: str) -> None:
        """Ends the communicator on every rank. While this rank still joins, the others notice that it has exited."""
        if not self._lock.acquire(timeout=_FAREWELL_S):
            self._ended = self._ended or text
            return
        try:
            if not self._ended:
                self._fail(text, self.launch.rank)
        finally:
            self._lock.release()

    def free(self) -> None:
        """Leaves, at the wish of this rank."""
        self.leave("it was freed")
        self.freed = True

    def leave(self, why: str, wait_s: float = -1) -> None:
        """Says that this rank makes no more calls, and closes the connections. Done at exit, if not before.

        What its NIC still executes is given up, which is an error on every rank that waits for it. If it still joins
        the others after `wait_s`, nothing is done; a negative time has no end.
        """
        if not self._lock.acquire(timeout=wait_s):
            return
        try:
            session = self._session
            if session is not None:
                self._say_farewell(session)
                self._session = None
                session.close(Failure(self.launch.rank, f"the communicator is no more: {why}"))
            if self._listener is not None:
                self._listener.close()
            self._find = None  # and with it the store of a job that may be over
            self._met = self._met or not self._ended
            self._ended = self._ended or why
        finally:
            self._lock.release()

    def _say_farewell(self, session: Session) -> None:
        if self._ended or os.getpid() != self._process:
            return
        self._advance_group()
        raised = uncaught()
        frame: messages.Frame = messages.Leave(session.matcher.number, raised)
        if session.group is not None and (left := session.group.pending) is not None:
            rank = self.launch.rank
            why = f": {raised}" if raised else ""
            frame = messages.Abort(rank, f"rank {rank} has left before its {left.call} was complete{why}")
        if not self._ended:
            session.progress.farewell(frame, _FAREWELL_S)

    # -- reports of the offload queue (softnic/comm/offload_queue.py) --

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
            at_fault = None if failure.rank is None else session.progress.peers.get(failure.rank)
            if at_fault is not None and at_fault.why:
                return Failure(failure.rank, f"rank {failure.rank} has left: {at_fault.why}")
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
        self._lock = threading.RLock()  # a thread that joins may have held it
        self._starting = threading.Lock()
        if self._session is not None and os.getpid() != self._process:
            self._session.close(Failure(None, ""))


_open_worlds: weakref.WeakSet[World] = weakref.WeakSet()


def _let_go_of_all() -> None:
    for world in list(_open_worlds):
        world.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


@atexit.register
def _leave_all() -> None:
    failed = hasattr(sys, "last_value")  # by an exception, which the other ranks should learn of at once
    for world in list(_open_worlds):
        world.leave("the process ends", 0.0 if failed or world.ended else EXIT_S)
    nic_launcher.release_all()
