"""The life of a communicator: its ranks connect at the start, a failure ends it, and it is left at the end.

COMM_WORLD starts with the first question for a rank or the number of ranks, or with the first call: from then on a
thread joins the other ranks, while the program loads its data. The first call waits for that thread.

A call that is refused, for its arguments or because an object cannot be pickled, has sent nothing: the communicator
remains usable, and other ranks wait for this one's next call. Every other error, on any rank, is reported to the other
ranks and ends the communicator on all of them. After a collective that only some ranks made, the bytes on the
connections have no meaning; and a rank that would wait for ever gets an error instead.
"""

from __future__ import annotations

import atexit
import errno
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress

from softnic import codecs
from softnic.codecs import threads
from softnic.comm import messages
from softnic.comm.bootstrap import nic_launcher
from softnic.comm.bootstrap.discovery import Discover
from softnic.comm.bootstrap.launch import Launch, ranks_here
from softnic.comm.bootstrap.nic_launcher import NicReference
from softnic.comm.connections import CommConnections
from softnic.comm.error_classes import ERR_OTHER, ERR_PROC_FAILED, ERR_REVOKED
from softnic.comm.errors import (
    REVOKED,
    ArgumentError,
    CommError,
    TransportError,
    code_of_end,
    failure_of,
    transport_errors,
    uncaught,
)
from softnic.comm.offload_queue import ENDED, Failure
from softnic.comm.survival.regroup import Regroup
from softnic.comm.transport import Transport
from softnic.mpi.failures import Failures
from softnic.mpi.groups import Process
from softnic.mpi.properties import CommProperties

EXIT_S = 5.0
"""How long the end of a program that still joins, or connects with a rank for a message, waits for the others."""
_FAREWELL_S = 0.5
"""How long a rank tries to send its last message to another one whose connection is full."""


class CommunicatorState:
    """All ranks of one communicator as this one sees them."""

    def __init__(
        self,
        launch: Launch | Callable[[], Launch],
        transport: Transport | None = None,
        listener: socket.socket | None = None,
        *,
        find: Discover | None = None,
        properties: CommProperties | None = None,
    ) -> None:
        self.properties = properties or CommProperties()
        self._launch = launch
        self._transport = transport
        self._listener = listener
        self._find = find
        """Finds the addresses of the ranks when they connect. None: the launch has them."""
        self._nic: NicReference | None = None
        self._connections: CommConnections | None = None
        self._codec: codecs.Codec | None = None
        self._ended = ""
        """Why no call can be made any more."""
        self._at_fault: int | None = None
        self._refused = ""
        """The error of the last call, if that was refused."""
        self._reported = False
        """The end was reported to the other ranks."""
        self._left = False
        """Its connections and its listener are closed."""
        self._joined = False
        """The ranks have connected, once."""
        self._lock = threading.RLock()
        self._begun = False
        """This rank has begun to join the others."""
        self._starting = threading.Lock()
        self._early = not isinstance(launch, Launch)
        """It joins when it is asked for its rank; other communicators do so at their first call."""
        self._process = os.getpid()
        """Owner of the connections: a process forked from it has them too, and must not use them."""
        self.freed = False
        """This rank has left, by Free."""
        self.failures = Failures()
        self._regroup: Regroup | None = None
        """Agreements with those that are left; None: there was none yet."""

    @property
    def launch(self) -> Launch:
        """The rank and the number of ranks, read from the environment at the first access."""
        if not isinstance(self._launch, Launch):
            self._launch = self._launch()
        return self._launch

    def start(self) -> Launch:
        """Return the launch, and begin to join the other ranks if that has not begun."""
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
        _open_states.add(self)

    def _join(self) -> None:
        with suppress(Exception), self.call("Init"):
            pass  # a failure is kept for the next call

    @property
    def connections(self) -> CommConnections | None:
        """None: not made yet, or closed."""
        return self._connections

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    def call(self, name: str, *, refusable: bool = True) -> CallScope:
        """Context of a communication call. The first one makes the connections.

        Parameters
        ----------
        name
            Of the call, for errors.
        refusable
            Whether the communicator remains usable after an error before the call has posted anything.
        """
        _ = self.launch  # first of all errors
        return CallScope(self, self._lock, name, refusable)

    def _begin_call(self, context: CallScope) -> CommConnections:
        """Start a call, with the lock held. Raises CommError."""
        self._check(context.name)
        context.checked = True
        connections = self._connections or self._connected()
        if context.refusable:
            context.posted_before = connections.calls
        return connections

    def _failed_call(self, context: CallScope, error: BaseException) -> BaseException:
        """Return what a call raises that has failed, with the lock held; it may end the communicator."""
        name, rank = context.name, self.launch.rank
        where = f"{name} on rank {rank}"
        if self._joined and isinstance(error, TransportError) and error.errno == errno.ENETDOWN:
            error = CommError(f"rank {rank} lost its NIC: {error.strerror}", rank=rank)
        failure = failure_of(error, name, where, rank) if context.checked else None
        if context.posted_before is not None and self._leaves_usable(error, context.posted_before):
            self._refused = str(failure) if failure is not None else f"{where}: {type(error).__name__}: {error}"
        elif context.checked:
            self._end_call(error, failure, where)
        if isinstance(raised := failure or error, CommError):
            if raised.code == ERR_OTHER:
                raised.code = code_of_end(str(raised))
            self.handle(raised)
        return raised

    def handle(self, error: CommError) -> None:
        """Have the error handler act on an error."""
        properties = self.properties
        properties.on_error.run(self, properties.named and properties.named(self), error)

    def _connected(self) -> CommConnections:
        """Return the connections, made if this is the first call. Raises TransportError and CommError."""
        if self._connections is None:
            self._begin()
            with transport_errors():
                self._connections = self._connect()
                self._listener = self._connections.listener or self._listener
                self.number_sources()
                self._connections.attend(self._lock, self.call)
                self._joined = True
                with self._lock:  # twice, and so also while it waits: no other thread calls before all have joined
                    self._connections.join(self)
        return self._connections

    def number_sources(self) -> None:
        """Number the sources of messages as the program does: in two groups, by the other group's ranks."""
        if self._connections is not None and self.properties.inter is not None:
            self._connections.matcher.first_source = self.properties.inter.first_remote

    def _leaves_usable(self, error: BaseException, posted_before: int) -> bool:
        """Return whether a call that raised `error` has left nothing that other ranks could misunderstand."""
        if self._ended or not isinstance(error, Exception) or isinstance(error, TransportError):
            return False
        if isinstance(error, CommError) and not isinstance(error, ArgumentError):
            return False
        queue = None if self._connections is None else self._connections.queue
        return queue is None or not queue.is_pending_after(posted_before)

    def _end_call(self, error: BaseException, failure: CommError | None, where: str) -> None:
        """End the communicator after an error."""
        if failure is None:
            self._fail(f"{where}: {type(error).__name__}: {error}", self.launch.rank)
        else:
            self._fail(failure.told or str(failure), failure.rank)

    def _check(self, name: str) -> None:
        """Raises CommError if no call can be made."""
        if self._begun and os.getpid() != self._process and not self._ended:
            where = f"{name} on rank {self.launch.rank}"
            raise CommError(f"{where}: the connections belong to the process that this one was forked from", call=name)
        self._advance_queue()
        if self._ended:
            where = f"{name} on rank {self.launch.rank}"
            what = "the communicator is no more" if self._joined else "the ranks could not join"
            raise CommError(f"{where}: {what}: {self._ended}", rank=self._at_fault, call=name)

    def _connect(self) -> CommConnections:
        """Raises OSError and CommError."""
        if self._find is None or self.launch.size == 1:
            return CommConnections(self.launch, self._transport, self._listener)
        threads.share_cores(ranks_here(os.environ))
        with self._find(self.launch) as found:
            self._launch, self._transport, self._listener = found.launch, found.transport, found.listener
            if found.nic is not None:
                self._nic = found.nic
                found.nic.use(self)
            return CommConnections(found.launch, found.transport, found.listener, found.presence)

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes of the ranks."""
        found = self.properties.processes
        return tuple(range(self.launch.size)) if found is None else found() if callable(found) else found

    def subset(self, launch: Launch, ranks: Sequence[int], listener: socket.socket | None) -> CommunicatorState:
        """Return the state of a communicator of some of these ranks, over the same NICs."""
        processes = self.processes
        properties = self.properties.inherited(tuple(processes[rank] for rank in ranks))
        state = CommunicatorState(launch, self.own_transport(), listener, properties=properties)
        if self._nic is not None:
            state._nic = self._nic
            self._nic.use(state)
        return state

    def own_transport(self) -> Transport | None:
        """Return what this communicator makes connections with; None: nothing yet."""
        return self._transport if self._connections is None else self._connections.transport

    @contextmanager
    def survivors(self, name: str) -> Iterator[Regroup]:
        """Context of a call by which those that are left agree, whether the communicator works or has failed.

        Raises CommError if this rank has left it, or it never had the addresses of the others.
        """
        with suppress(CommError), self.call(name):
            pass  # connects, if that has not been done; what fails is what the call is for
        with self._lock:
            transport = self.own_transport()
            if self._left or self._listener is None or transport is None:
                self._check(name)
                raise CommError(f"{name} on rank {self.launch.rank}: the ranks have not met", call=name)
            if self._regroup is None:
                self._regroup = Regroup(self.launch, transport, self._listener, self._take_survivors, self._check_nic)
            try:
                with transport_errors():
                    yield self._regroup
            except (CommError, TransportError) as error:
                failed = failure_of(error, name, f"{name} on rank {self.launch.rank}", self.launch.rank)
                assert failed is not None
                failed.code = ERR_PROC_FAILED
                self.handle(failed)
                raise failed from error

    def listening(self, backlog: int) -> AbstractContextManager[socket.socket]:
        """Return a listening socket on this rank's NIC, which the context closes. Raises OSError."""
        transport = self.own_transport() or Transport()
        return closing(transport.listen((transport.address(), 0), backlog))

    def _take_survivors(self) -> list[tuple[int, socket.socket]]:
        return [] if self._connections is None else self._connections.take_survivors()

    def _check_nic(self) -> None:
        if self._connections is not None:
            self._connections.progress.check_nic()

    def lost_ranks(self) -> list[int]:
        """Return the rank whose failure has ended the communicator, if one has."""
        lost = self._at_fault is not None and code_of_end(self._ended) == ERR_PROC_FAILED
        return [self._at_fault] if lost and self._at_fault not in (None, self.launch.rank) else []

    @property
    def revoked(self) -> bool:
        """Whether a rank has ended the communicator by `revoke`, as far as this one has learnt of it."""
        with self._lock:
            if not self._ended and self._connections is not None:
                with suppress(CommError):
                    self._advance_queue()
        return code_of_end(self._ended) == ERR_REVOKED

    def revoke(self) -> None:
        """End the communicator on every rank."""
        with self.call("Revoke"):
            pass
        self.abort(f"{REVOKED} by rank {self.launch.rank}")

    def default_codec(self, connections: CommConnections) -> codecs.Codec:
        """Return the codec of this rank's NIC. Raises ValueError."""
        if self._codec is None:
            self._codec = codecs.get(connections.default_codec())
        return self._codec

    def _advance_queue(self) -> None:
        """Notice that requests in progress have failed."""
        queue = None if self._connections is None else self._connections.queue
        if queue is not None and queue.pending is not None:
            queue.advance()

    def _fail(self, text: str, rank: int | None) -> None:
        """End the communicator; the first reason is reported to the other ranks."""
        if self._reported:
            return
        self._ended, self._at_fault = text, rank
        self._reported = True
        if self._connections is not None:
            self._connections.progress.farewell(messages.Abort(-1 if rank is None else rank, text), _FAREWELL_S)
            self._connections.hang_up(Failure(rank, f"{ENDED}{text}"))

    def abort(self, text: str) -> None:
        """End the communicator on every rank. While this rank still joins, the others notice that it has exited."""
        if not self._lock.acquire(timeout=_FAREWELL_S):
            self._ended = self._ended or text
            return
        try:
            if not self._ended:
                self._fail(text, self.launch.rank)
        finally:
            self._lock.release()

    def free(self) -> None:
        """Leave at the request of this rank."""
        self.leave("it was freed")
        self.freed = True

    def leave(self, why: str, wait_s: float = -1) -> None:
        """Announce that this rank makes no more calls, and close the connections. Done at exit, if not before.

        Requests in progress are given up, which is an error on every rank that waits for them. If the lock cannot be
        had within `wait_s`, because this rank still joins the others, nothing is done; a negative time has no end.
        """
        if not self._lock.acquire(timeout=wait_s):
            return
        try:
            connections = self._connections
            if connections is not None:
                left = self._say_farewell(connections)
                self._connections = None
                connections.close(Failure(self.launch.rank, f"{ENDED}{why}"), left)
            if self._regroup is not None:
                self._regroup.close()
            if self._listener is not None:
                self._listener.close()
            self._left = True
            self._find = None  # and with it the store of a job that may be over
            self._joined = self._joined or not self._ended
            self._ended = self._ended or why
        finally:
            self._lock.release()

    def _say_farewell(self, connections: CommConnections) -> str:
        """Tell the other ranks that this one leaves. Return what is wrong with that; empty: nothing."""
        if self._ended or os.getpid() != self._process:
            return ""
        self._advance_queue()
        raised = uncaught() or self._refused
        frame: messages.Frame = messages.Leave(connections.calls, raised)
        wrong = ""
        if connections.queue is not None and (pending := connections.queue.pending) is not None:
            rank = self.launch.rank
            why = f": {raised}" if raised else ""
            wrong = f"rank {rank} has left before its {pending.call} was complete{why}"
            frame = messages.Abort(rank, wrong)
        if not self._ended and not wrong:
            with suppress(CommError, TransportError):  # another rank has failed meanwhile
                connections.progress.connect_for_rest(EXIT_S)
        if not self._ended:
            connections.progress.farewell(frame, _FAREWELL_S)
        return wrong

    # Failures of the work queue (softnic/comm/offload_queue.py)

    def explain(self, failure: Failure) -> Failure:
        """Return the failure as the rank at fault has reported it, if it has."""
        connections = self._connections
        if connections is None or self._ended or not self._lock.acquire(blocking=False):
            return failure  # another thread is in a call, and reads the report
        try:
            return connections.explain(failure)
        finally:
            self._lock.release()

    def on_failure(self, call: str, failure: Failure) -> None:
        """End the communicator: a request failed."""
        text = f"{call} on rank {self.launch.rank}: {failure.text}"
        if not self._lock.acquire(blocking=False):
            self._ended, self._at_fault = text, failure.rank  # the thread that is in a call does the rest
            return
        try:
            if not self._ended:
                self._fail(text, failure.rank)
        finally:
            self._lock.release()

    def detach_fork(self) -> None:
        """In a forked process: close its copies of the connections, so that they end with their owner."""
        self._lock = threading.RLock()  # a thread that joins may have held it
        self._starting = threading.Lock()
        if self._listener is not None and os.getpid() != self._process:
            self._listener.close()
        if self._connections is not None and os.getpid() != self._process:
            self._connections.close(Failure(None, ""))


class CallScope:
    """The context of one call (CommunicatorState.call). The communicator's lock is held meanwhile."""

    __slots__ = ("_lock", "_state", "checked", "name", "posted_before", "refusable")

    def __init__(self, state: CommunicatorState, lock: threading.RLock, name: str, refusable: bool) -> None:
        self._state = state
        self._lock = lock
        self.name = name
        self.refusable = refusable
        self.checked = False
        """The communicator could be used when it began."""
        self.posted_before: int | None = None
        """Number of collectives before it, if it is refusable."""

    def __enter__(self) -> CommConnections:
        self._lock.acquire()
        try:
            return self._state._begin_call(self)
        except BaseException as error:
            self._raise(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        state = self._state
        if error is not None:
            self._raise(error)
            return
        try:
            if state._ended:  # another thread has seen a request fail
                state._fail(state._ended, state._at_fault)
            state._refused = ""
        finally:
            self._lock.release()

    def _raise(self, error: BaseException) -> None:
        """End the call, and raise its error unless that is `error` itself."""
        try:
            raised = self._state._failed_call(self, error)
        finally:
            self._lock.release()
        if raised is not error:
            raise raised from (error.__cause__ if isinstance(error, CommError) else error)


_open_states: weakref.WeakSet[CommunicatorState] = weakref.WeakSet()


def _detach_fork() -> None:
    for state in list(_open_states):
        state.detach_fork()


os.register_at_fork(after_in_child=_detach_fork)


@atexit.register
def _leave_all() -> None:
    failed = hasattr(sys, "last_value")  # by an exception, which the other ranks should learn of at once
    for state in list(_open_states):
        state.leave("the process ends", 0.0 if failed or state.ended else EXIT_S)
    nic_launcher.release_all()
