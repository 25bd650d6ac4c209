"""Moves the control messages of one communicator: every blocking call waits in `Progress.run`.

CONTROL connections are non-blocking, and handled inside calls only. They are always read; the frames on them announce
messages, which the NIC sends and receives (zerocopy_channel.py).

The communicator's lock is held inside calls, but not while `run` waits: several threads may make calls. Of those that
wait one polls, and notifies the others.

A call ends with a CommError if a connection closes before its rank sent Leave, a socket fails, another rank sends an
Abort, the work queue fails, or the call's own `done` raises. A rank that is gone may have done its part of the call and
ended without a word (os._exit): the call may go on for GONE_S where nothing of that rank is missing.
"""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from softnic.collectives.messages import MISMATCHED
from softnic.comm import messages
from softnic.comm.bootstrap.mesh import MeshBuilder
from softnic.comm.errors import CommError, transport_errors
from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S, Heartbeat
from softnic.comm.inbox import READ_BYTES
from softnic.comm.offload_queue import Failure, OffloadQueue
from softnic.comm.peer import Connections, FrameListener, Peer
from softnic.comm.waiting import Ready, Waiter
from softnic.terminal import printable

GONE_S = 2.0
"""How long a call may go on when a rank is gone: the 5 s of the contract less the time to notice."""
LAST_WORDS_S = 0.5
"""When the work queue fails: the time for other ranks to say why."""
_READS = 8
"""Of one connection, before others have their turn."""
_REPORTS = 4
"""Of a peer's paths that wait to be used: it sends one when all have used the last."""
_BROKEN = select.POLLHUP | select.POLLERR | select.POLLNVAL
_ENDED = {errno.ECONNRESET, errno.EPIPE}
"""Errors when a rank's process ends; its data may still arrive. Others come from a NIC or a network."""


class Progress:
    """The control connections of rank `rank` to the others of `size`, and the loop over them."""

    def __init__(self, rank: int, size: int = 1) -> None:
        self.rank = rank
        received = memoryview(bytearray(READ_BYTES))
        self.peers = {other: Peer(other, received) for other in range(size) if other != rank}
        self.connected: dict[int, Peer] = {}
        """Those of them that have connections."""
        self.listener: FrameListener | None = None
        self.queue: OffloadQueue | None = None
        """Requests to this rank's NIC."""
        self.heartbeat: Heartbeat | None = None
        """Of this rank's NIC."""
        self.over = ""
        """Why the connections were closed."""
        self._at_fault: int | None = None
        """The rank that is to blame for that, if it is a single one."""
        self.waiter = Waiter()
        self.lock = threading.RLock()
        """The communicator's."""
        self.mesh: MeshBuilder | None = None
        """Makes further connections; None: all are made."""
        self._whole_mesh: MeshBuilder | None = None
        """The same, once all are made: to be closed at the end."""
        self._unjoined: set[int] = set()
        """Ranks that were connected after the start, and whose NICs do not have the connections yet."""
        self.is_wanting = False
        """Connections are being made."""
        self.on_connected: Callable[[Peer, Connections], None] = lambda _peer, _connections: None
        """Called with each rank that is connected after the start, before anything is read from it."""
        self.on_joined: Callable[[Peer], None] = lambda _peer: None
        """Called with each of those ranks when its NIC has its connections."""
        self.on_wanting: Callable[[bool], None] = lambda _is_wanting: None
        """Called when connections begin to be made, and when there are none to be made any more."""
        self._by_fd: dict[int, Peer] = {}
        self._deadline = 0.0
        """When a call must be complete, once a rank is gone; 0: none is."""

    def connect(self, rank: int, control: socket.socket) -> None:
        """Exchange frames with a rank over its CONTROL connection."""
        peer = self.peers[rank]
        peer.connect(control)
        self.connected[rank] = peer
        peer.events, self._by_fd[control.fileno()] = select.POLLIN, peer
        self.waiter.register(control.fileno())

    def connect_later(self, mesh: MeshBuilder) -> None:
        """Have further connections made when they are needed."""
        self.mesh = mesh
        self.waiter.register(mesh.fd)

    def want(self, peer: Peer) -> None:
        """Begin to connect with a rank, unless it is connected. Returns at once."""
        if self.mesh is not None and peer.control is None:
            self.want_ranks((peer.rank,))

    def want_ranks(self, ranks: Iterable[int]) -> None:
        """Begin to connect with these ranks, as far as they are not connected. Returns at once."""
        if self.mesh is None:
            return
        for peer in map(self.peers.__getitem__, ranks):
            if peer.control is None and not peer.absent:
                self.mesh.want(peer.rank)
        self._advance_mesh()

    def _take(self, rank: int, connections: Connections) -> None:
        """Use the connections to one more rank."""
        try:
            self.on_connected(self.peers[rank], connections)
            self.connect(rank, connections[messages.CONTROL])
            self._unjoined.add(rank)
        except BaseException:
            for connection in connections:
                connection.close()
            raise

    def _advance_mesh(self) -> None:
        """Make connections, as far as that is possible now. Raises CommError and TransportError."""
        mesh = self.mesh
        if mesh is None:
            return
        with transport_errors():
            mesh.advance()
            while (taken := mesh.take()) is not None:
                self._take(*taken)
        while mesh.lost:
            rank, why = mesh.lost.popitem()
            self.peers[rank].gone = why
            self._deadline = self._deadline or time.monotonic() + GONE_S
        if mesh.is_complete:
            self.waiter.unregister(mesh.fd)
            self.mesh, self._whole_mesh = None, mesh
        self._look_at_wanting()

    def _look_at_wanting(self) -> None:
        """Note whether connections are being made."""
        is_wanting = bool(self._unjoined) or (self.mesh is not None and self.mesh.is_busy)
        if is_wanting != self.is_wanting:
            self.is_wanting = is_wanting
            self.on_wanting(is_wanting)

    def share(self, lock: threading.RLock) -> None:
        """Use the lock that all calls of the communicator hold."""
        self.lock = lock

    def attach(self, queue: OffloadQueue) -> None:
        """Wait for the completions of a work queue, too."""
        self.queue = queue
        self.waiter.watch(queue.waiter)

    def run(self, done: Callable[[], bool]) -> None:
        """Make progress until `done()`. Raises CommError, and what `done` raises."""
        try:
            self._advance()
            while True:
                changes = self.waiter.changes
                if done() and not any([peer.outbox.frames for peer in self.peers.values()]):
                    return
                self._check_queue()
                with transport_errors():
                    self._wait(changes)
        finally:
            self.notify()

    def turn(self) -> None:
        """Make the progress that is possible without waiting. Raises CommError."""
        self._advance()
        self._advance_mesh()
        self._check_queue()
        with transport_errors():
            self._arm()
            self._timeout_s()
            ready = self.waiter.poll()
        self._check_heartbeat(ready)
        if ready:
            self._process(ready)
            self._advance()
            self.notify()

    def notify(self) -> None:
        """Have the other threads that wait look again."""
        self.waiter.notify()

    def _check_queue(self) -> None:
        if self.queue is not None and self.queue.failure is not None:
            raise CommError(self.queue.failure.text, rank=self.queue.failure.rank)

    def _wait(self, changes: int) -> None:
        """Wait until something has happened, and handle it."""
        self._arm()
        timeout_s = self._timeout_s()
        self.lock.release()
        try:
            ready = self.waiter.wait(changes, timeout_s)
        finally:
            self.lock.acquire()
        self._check_open()
        self._advance_mesh()
        if ready is None:
            self._advance()
            return
        self._check_heartbeat(ready)
        if self._process(ready):
            self._advance()
        else:
            self.advance_channels()
        if ready:
            self.notify()

    def _check_open(self) -> None:
        if self.over:
            raise CommError(self.over, rank=self._at_fault)

    def _process(self, ready: Ready) -> bool:
        """Handle what has happened to connections; return whether the work queue needs attention, too."""
        peers = 0
        for fd, events in ready:
            if (peer := self._by_fd.get(fd)) is not None:
                self._handle(peer, events)
                peers += 1
        return not 0 < peers == len(ready)

    def _advance(self) -> None:
        """Handle completions, and post what can be posted after them."""
        if self.queue is not None:
            self.queue.advance()
            self.advance_channels()

    def advance_channels(self) -> None:
        """Post the parts of messages that can be posted now."""
        if self.queue is not None and self.queue.failure is None:
            for peer in self.peers.values():
                for channel in peer.channels:
                    channel.advance()

    def _arm(self) -> None:
        """Poll for what is needed now."""
        for fd, peer in self._by_fd.items():
            if (events := peer.poll_events) != peer.events:
                self.waiter.modify(fd, events)
                peer.events = events

    def _timeout_s(self) -> float:
        """Return for how long to poll. Raises CommError when a rank has been gone for too long."""
        if not self._deadline:
            retry_at = None if self.mesh is None else self.mesh.next_time()
            left = HEARTBEAT_INTERVAL_S if retry_at is None else retry_at - time.monotonic()
            return min(max(left, 0.0), HEARTBEAT_INTERVAL_S)
        if (left := self._deadline - time.monotonic()) > 0:
            return min(left, HEARTBEAT_INTERVAL_S)
        peer = next(peer for peer in self.peers.values() if peer.gone)
        raise self.lost(peer, peer.gone)

    def check_nic(self) -> None:
        """Raises CommError if this rank's own NIC does not answer. To be called at least twice a second."""
        self._check_heartbeat([])

    def _check_heartbeat(self, ready: Ready) -> None:
        """Raises CommError if this rank's own NIC does not answer. What is on its connections is an answer, too."""
        if self.heartbeat is None:
            return
        queue_fd = -1 if self.queue is None else self.queue.waiter.fd
        heard = any([fd in self._by_fd or fd == queue_fd for fd, _ in ready])
        try:
            if heard:
                self.heartbeat.on_reply(time.monotonic())
            else:
                self.heartbeat.poll(time.monotonic())
        except OSError as error:
            raise CommError(f"rank {self.rank} lost its NIC: {error.strerror}", rank=self.rank) from error

    def explain(self, failure: Failure) -> Failure:
        """Return a failure of the work queue with what the rank at fault says about it soon, if it does."""
        until, stalled = time.monotonic() + LAST_WORDS_S, self._has_stalled()
        at_fault = self.peers.get(-1 if failure.rank is None else failure.rank)
        while failure.rank != self.rank and (left := until - time.monotonic()) > 0:
            if failure.rank is None:  # a connection has closed: whoever is gone has closed it
                at_fault = next((peer for peer in self.peers.values() if peer.gone), None)
            if (at_fault is not None and at_fault.absent) or not self._by_fd:
                break
            try:
                self._listen(left)
            except CommError as error:
                if isinstance(error.__cause__, ValueError) and error.rank == failure.rank:
                    return Failure(error.rank, str(error))  # it is gone because of its nonsense
                speakers = {error.rank, failure.rank} - {None}
                explained = (MISMATCHED, *(f"rank {speaker} says" for speaker in speakers))
                if error.told and str(error).startswith(explained):
                    return Failure(error.rank, str(error))
        if at_fault is not None and at_fault.why:
            return Failure(at_fault.rank, f"rank {at_fault.rank} has left: {at_fault.why}")
        if at_fault is not None and at_fault.gone:
            lost = self.lost(at_fault, at_fault.gone, stalled)
            return Failure(lost.rank, str(lost))
        return failure

    def _listen(self, timeout_s: float) -> None:
        poll = select.poll()
        for fd in self._by_fd:
            poll.register(fd, select.POLLIN)
        for fd, events in poll.poll(timeout_s * 1000):
            self._handle(self._by_fd[fd], events)

    def missing(self, peer: Peer, what: str) -> CommError:
        """Return the error for something that an absent rank did not do: what NICs know of it, or its last words."""
        if self.queue is not None and self.queue.failure is not None:
            return CommError(self.queue.failure.text, rank=self.queue.failure.rank)
        if peer.gone:
            return self.lost(peer, peer.gone)
        none = ": it made no collective call" if peer.left == 0 else ""
        why = f": {peer.why}" if peer.why else none
        return CommError(f"rank {peer.rank} has left without {what}{why}", rank=peer.rank)

    def lost(self, peer: Peer, why: str | OSError, stalled: bool = False) -> CommError:
        """Return the error for a connection that has ended. `stalled`: this rank's NIC had just stalled.

        Without its own NIC a rank knows nothing about the others. A NIC that stalled causes resets; a process that dies
        ends its connections in good order.
        """
        if isinstance(why, OSError):
            if stalled or self._has_stalled():
                return CommError(f"rank {self.rank} lost its NIC: it stalled", rank=self.rank)
            if why.errno == errno.ENETDOWN:
                return CommError(f"rank {self.rank} lost its NIC: {why.strerror}", rank=self.rank)
            why = why.strerror or str(why)
        return CommError(f"rank {peer.rank} is gone: {why}", rank=peer.rank)

    def _has_stalled(self) -> bool:
        return self.heartbeat is not None and self.heartbeat.has_stalled(time.monotonic())

    # Frames

    def post(self, peer: Peer, frame: messages.Frame) -> None:
        """Queue a frame and send what the connection takes at once; nothing to a rank that is absent."""
        if not peer.absent:
            peer.outbox.post(messages.pack(frame))
            self.want(peer)

    def receive(self, peer: Peer) -> None:
        """Handle what has arrived from a peer. Raises CommError."""
        if peer.control is not None and peer.control.fileno() in self._by_fd:
            self._read(peer)

    def _handle(self, peer: Peer, events: int) -> None:
        if events & select.POLLOUT:
            peer.outbox.flush()
        if events & (select.POLLIN | _BROKEN):
            self._read(peer)

    def _read(self, peer: Peer) -> None:
        listener, control = self.listener, peer.control
        assert listener is not None
        assert control is not None
        for _ in range(_READS):
            try:
                count = peer.inbox.read(control)
            except BlockingIOError:
                return
            except OSError as error:
                self._closed(peer, error)
                return
            if not count:
                self._closed(peer, "it closed the connection without a word")
                return
            try:
                for frame in peer.inbox.frames(count, partial(listener.started, peer)):
                    if type(frame) is messages.Announce:
                        listener.announced(peer, frame)
                    else:
                        self._on_frame(peer, frame)
            except ValueError as error:
                if isinstance(error, CommError):
                    raise
                raise CommError(f"rank {peer.rank} sent nonsense: {error}", rank=peer.rank) from error
            if not peer.inbox.is_full(count):
                return

    def _closed(self, peer: Peer, why: str | OSError) -> None:
        assert peer.control is not None
        self._unjoined.discard(peer.rank)
        self._look_at_wanting()
        if self._by_fd.pop(peer.control.fileno(), None) is not None:
            self.waiter.unregister(peer.control.fileno())
        peer.outbox.clear()
        if peer.left is None:
            peer.gone = why
            self._deadline = self._deadline or time.monotonic() + GONE_S
            if isinstance(why, OSError) and why.errno not in _ENDED:
                raise self.lost(peer, why)

    def _on_frame(self, peer: Peer, frame: messages.Frame) -> None:
        assert self.listener is not None
        match frame:
            case messages.Waiting():
                peer.waiting = messages.Waiting(frame.number, printable(frame.call)) if frame.number else None
            case messages.Credit():
                peer.outbox.credit += frame.size
            case messages.Taken():
                self.listener.taken(frame.number)
            case messages.Abort():
                at_fault = frame.rank if frame.rank >= 0 else None
                told = printable(frame.text, keep="\n")
                _, mismatched, calls = told.partition(MISMATCHED)
                text = f"{mismatched}{calls}" if mismatched else f"rank {peer.rank} says: {told}"
                raise CommError(text, rank=at_fault, told=told)
            case messages.Leave():
                peer.left, peer.why = frame.number, printable(frame.why, keep="\n")
            case messages.Joined():
                peer.joined = True
                self.on_joined(peer)
                self._unjoined.discard(peer.rank)
                self._look_at_wanting()
            case messages.Paths():
                if len(peer.reports) >= _REPORTS:
                    raise ValueError("more reports of its paths than are due")
                peer.reports[frame.number] = frame
            case messages.Hello() | messages.Gathered():
                raise ValueError(f"a {type(frame).__name__} in the middle")

    # The end

    def connect_for_rest(self, wait_s: float) -> None:
        """Connect with the ranks that frames still wait for, for at most `wait_s`. Raises CommError."""
        until = time.monotonic() + wait_s
        while any(peer.outbox and peer.control is None and not peer.absent for peer in self.peers.values()):
            if time.monotonic() >= until:
                return
            changes = self.waiter.changes
            with transport_errors():
                self._wait(changes)

    def farewell(self, frame: messages.Frame, wait_s: float) -> None:
        """Send a last frame to all ranks, for at most `wait_s` where a connection is full."""
        for peer in self.connected.values():
            if peer.absent:
                continue
            peer.outbox.post(messages.pack(frame))
            poll = select.poll()
            poll.register(peer.control or -1, select.POLLOUT)
            while peer.outbox and poll.poll(wait_s * 1000):
                peer.outbox.flush()

    def _end(self, why: str) -> None:
        self.over = self.over or why
        self.notify()

    def hang_up(self, why: Failure) -> None:
        """End the outgoing direction of all connections; what was sent still arrives. Waiting threads get an error."""
        self._at_fault = why.rank
        self._end(why.text)
        self._end_mesh()
        for peer in self.connected.values():
            with suppress(OSError):  # it has ended already
                if peer.control is not None:
                    peer.control.shutdown(socket.SHUT_WR)

    def close(self, why: str = "the communicator is no more: its connections are closed") -> None:
        """Close all connections. Threads that wait here get an error."""
        self._end(why)
        self._end_mesh()
        self.waiter.close()
        for peer in self.connected.values():
            if peer.control is not None:
                peer.control.close()

    def _end_mesh(self) -> None:
        for mesh in (self.mesh, self._whole_mesh):
            if mesh is not None:
                mesh.close()
        self.mesh = self._whole_mesh = None
