"""Collectives and messages that this NIC executes for applications (softnic/ipc/work_queue.py).

An application hands over the streams of a communicator and one end of a work queue's socket. The NIC runs a collective
engine over the streams and reads requests while the engine has space for them. When the application closes the socket
or one of the streams, or breaks a rule, the engine and all of its streams end, and no memory is kept.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol

import msgspec

from softnic.collectives import CollectiveEngine, nbytes
from softnic.collectives.messages import header_of
from softnic.collectives.progress import links_of
from softnic.ipc import work_queue
from softnic.ipc.collectives_info import MAX_OPERATIONS, FailedCommunicatorInfo, OperationInfo, RankLinkInfo
from softnic.ipc.work_queue import MAX_PACKET, CancelRequest, StagedPart, WorkCompletion, WorkRequest
from softnic.packet import ipv4
from softnic.tcp.connection import Connection
from softnic.tcp.peer_stream import peer_streams
from softnicd.regions import Regions
from softnicd.relieved_connection import RelievedConnection
from softnicd.streams import Stream

_EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_AT_ONCE = socket.MSG_DONTWAIT
_LOCAL_FAULT_S = 1.0
"""After this NIC stalled: for the consequences at the peers to arrive."""
_FAILURES = 16
"""Failures of communicators that are remembered, for `softnic stat --why`."""
_BUFFER = memoryview(bytearray(MAX_PACKET + 1))

log = logging.getLogger("softnicd")


class EngineTurns(Protocol):
    """What moves the blocks of engines (turn.py)."""

    def add_engine(self, engine: Any) -> None:
        """Take an `sn_engine`."""

    def move_engine(self, engine: Any) -> bool:
        """Do what C can do now for an engine that was taken; return whether Python has to go on."""

    def remove_engine(self, engine: Any) -> None: ...


@dataclass(slots=True)
class OffloadCounters:
    communicators: int = 0
    """Joined and not ended."""
    communicators_failed: int = 0
    collectives_posted: int = 0
    collectives_completed: int = 0
    collectives_microseconds: int = 0
    """Sum of the times from post to completion, of those completed."""
    collectives_failed: int = 0
    """Posted, and not complete when their communicator failed."""
    work_requests_malformed: int = 0
    """Communicators ended because of a request that breaks a rule."""


class PostedCollective(NamedTuple):
    time: float
    request: WorkRequest


class OffloadedCommunicator:
    """The NIC's side of one work queue. `connection` is its end of the socket, which it closes."""

    __slots__ = (
        "at_the_end", "blocked", "connection", "connections", "engine", "fd", "in_progress", "is_open",
        "posted_at", "readable", "relieved", "streams",
    )  # fmt: skip

    def __init__(
        self,
        connection: socket.socket,
        engine: CollectiveEngine,
        streams: Sequence[Stream],
        connections: dict[int, list[Connection]],
        relieved: list[RelievedConnection],
        now: float,
    ) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.fd = connection.fileno()
        self.engine = engine
        self.streams = streams
        self.is_open = True
        """The application has its end open."""
        self.readable = True
        """Requests, or the end, may wait in the socket."""
        self.blocked = False
        """The application does not read its completions; the poller reports when it does."""
        self.in_progress: dict[int, PostedCollective] = {}
        """Collectives that were posted and whose outcome was not reported, by number."""
        self.posted_at = now
        """When the last request came."""
        self.at_the_end: list[OperationInfo] = []
        """Of a failed one: what was in progress, and what was posted afterwards."""
        self.connections = connections
        """Below the streams of blocks and of messages, by rank."""
        self.relieved = relieved
        """The process's own, while those of the engine are probed in their place."""

    def links(self, now: float) -> list[RankLinkInfo]:
        """Return what this rank exchanges with each other one."""
        infos = {rank: [each.info(now) for each in those] for rank, those in self.connections.items()}
        return links_of(self.engine, infos)

    @property
    def can_read(self) -> bool:
        """Whether it would read a request without waiting for anything else."""
        return self.is_open and self.readable and self.engine.space > 0


class OffloadedCollectives:
    """All communicators of a NIC. `drop` is called with each stream of one that has ended."""

    def __init__(self, poller: select.epoll, regions: Regions, drop: Callable[[Stream, float], None]) -> None:
        self.counters = OffloadCounters()
        self._poller = poller
        self._regions = regions
        self._drop = drop
        self._by_fd: dict[int, OffloadedCommunicator] = {}
        self._by_stream: dict[Stream, OffloadedCommunicator] = {}
        self._touched: set[OffloadedCommunicator] = set()
        """Communicators with an event to handle."""
        self._advanced: list[OffloadedCommunicator] = []
        """Communicators with possible replies."""
        self._failures: deque[tuple[float, FailedCommunicatorInfo]] = deque(maxlen=_FAILURES)
        """The latest, with their times."""
        self._local_fault_until = 0.0
        self.turn: EngineTurns | None = None
        """Moves the blocks of engines in C."""

    def __bool__(self) -> bool:
        return bool(self._by_fd)

    @property
    def communicators(self) -> Collection[OffloadedCommunicator]:
        """All that have joined and not ended."""
        return self._by_fd.values()

    def failures(self, now: float) -> list[FailedCommunicatorInfo]:
        """Return the latest failures of communicators, oldest first."""
        return [msgspec.structs.replace(each, age_s=now - time) for time, each in self._failures]

    @property
    def has_work(self) -> bool:
        """Whether `advance` would do something at once."""
        return bool(self._touched)

    @property
    def needs_python(self) -> bool:
        """Whether Python is needed in every turn, for what is in progress."""
        return bool(self._touched) or any(each.engine.needs_python for each in self._by_fd.values())

    def join(
        self,
        fd: int,
        rank: int,
        streams: Sequence[Sequence[Stream | None]],
        now: float,
        process: Sequence[Stream | None] = (),
    ) -> None:
        """Add a communicator, which owns the file descriptor from now on. Raises ValueError for unfit streams."""
        control, data, *messages = (
            peer_streams({other: s.connection for other, s in enumerate(side) if s and s.connection})
            for side in streams
        )
        pairs = {other: (messages[0][other], messages[1][other]) for other in messages[0]} if messages else {}
        engine = CollectiveEngine(rank, len(streams[0]), control, data, pairs)
        own = [stream for stream in chain.from_iterable(streams) if stream is not None]
        connections = {
            other: [s.connection for s in (side[other] for side in streams[1:]) if s and s.connection]
            for other in range(len(streams[0]))
            if other != rank
        }
        relieved = [
            RelievedConnection(s.connection, watched.connection, now)
            for s, watched in zip(process, streams[0], strict=False)
            if s and watched and s.connection and watched.connection and watched.connection.keepalive
        ]
        communicator = OffloadedCommunicator(socket.socket(fileno=fd), engine, own, connections, relieved, now)
        for stream in own:
            stream.offloaded = True
            self._by_stream[stream] = communicator
        self._by_fd[fd] = communicator
        if self.turn is not None:
            self.turn.add_engine(engine.steps.c)
            engine.steps.move_in_c = self.turn.move_engine
        self._poller.register(fd, _EDGES)
        self._touched.add(communicator)
        self.counters.communicators += 1
        log.debug("rank %d of %d joins a communicator", rank, len(streams[0]))

    def handle(self, fd: int, mask: int) -> bool:
        """Handle an event of epoll; return whether the file descriptor belongs to a communicator."""
        communicator = self._by_fd.get(fd)
        if communicator is None:
            return False
        if mask & ~select.EPOLLOUT:
            communicator.readable = True
        self._touched.add(communicator)
        return True

    def touch(self, stream: Stream) -> None:
        """Note an event of a stream."""
        self._touched.add(self._by_stream[stream])

    def advance(self, now: float) -> None:
        """Run the engines, between what the node receives and what it sends."""
        if self._local_fault_until and now >= self._local_fault_until:
            self._local_fault_until = 0.0
            for communicator in self._by_fd.values():
                communicator.engine.local_fault = ""
        touched, self._touched = self._touched, set()
        for communicator in list(self._by_fd.values()):
            if communicator in touched or communicator.engine.is_busy:
                self._advance(communicator, now)

    def next_time(self) -> float | None:
        """Return when `advance` has something to do, if nothing happens before."""
        first: float | None = None
        for communicator in self._by_fd.values():
            time = communicator.engine.next_time()
            if time is not None and (first is None or time < first):
                first = time
        return first

    def _advance(self, communicator: OffloadedCommunicator, now: float) -> None:
        engine = communicator.engine
        try:
            self._read_requests(communicator, now)
            engine.advance(now)
        except Exception:
            log.exception("internal error of a collective engine")
            engine.fail(now, engine.rank, f"internal error in the NIC of rank {engine.rank}: its log has details")
        for each in [each for each in communicator.relieved if each.is_due]:
            communicator.relieved.remove(each)
            each.end_relief(now)
        self._advanced.append(communicator)

    def report(self, now: float) -> None:
        """Send replies, and end what applications have closed: last in a turn, since what wakes an application may take
        the processor from this one."""
        advanced, self._advanced = self._advanced, []
        for communicator in advanced:
            if self._by_fd.get(communicator.fd) is not communicator:
                continue
            self._report(communicator, now)
            if not communicator.is_open:
                self._end(communicator, now)
            elif communicator.can_read:
                self._touched.add(communicator)

    # The work queue

    def _read_requests(self, communicator: OffloadedCommunicator, now: float) -> None:
        """Read requests while the engine has space for them."""
        while communicator.can_read:
            try:
                size = communicator.connection.recv_into(_BUFFER, 0, _AT_ONCE)
            except BlockingIOError:
                communicator.readable = False
                return
            except OSError:
                size = 0
            if not size:
                communicator.is_open = False
                return
            try:
                self._handle(communicator, _BUFFER[:size], now)
            except ValueError as error:
                self.counters.work_requests_malformed += 1
                rank = communicator.engine.rank
                communicator.engine.fail(now, rank, f"rank {rank} posted an invalid request to its NIC: {error}")

    def _handle(self, communicator: OffloadedCommunicator, packet: memoryview, now: float) -> None:
        """Handle one request. Raises ValueError for what no application posts."""
        engine = communicator.engine
        communicator.posted_at = now
        try:
            request = work_queue.decode_from_process(packet)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"not a work request: {error}") from None
        if isinstance(request, CancelRequest):
            engine.cancel(request, now)
        elif engine.failure is not None:
            if isinstance(request, WorkRequest) and len(communicator.at_the_end) < MAX_OPERATIONS:
                communicator.at_the_end.append(OperationInfo(request.number, header_of(request).describe(), 0.0, 0, 0))
        elif isinstance(request, WorkRequest):
            size = nbytes(request)
            engine.post(request, self._memory(*request.source, size), self._memory(*request.result, size))
            communicator.in_progress[request.number] = PostedCollective(now, request)
            self.counters.collectives_posted += 1
        elif isinstance(request, StagedPart):
            engine.stage(request)
        else:
            number, offset = request.memory
            engine.post_message(request, self._memory(number, offset, request.size))

    def _memory(self, number: int, offset: int, size: int) -> memoryview:
        region = self._regions.get(number)
        if region is None:
            raise ValueError(f"the NIC has no region {number}")
        if not 0 <= offset <= offset + size <= len(region):
            raise ValueError(f"bytes {offset} to {offset + size} of a region of {len(region)} bytes")
        return region[offset : offset + size]

    def _report(self, communicator: OffloadedCommunicator, now: float) -> None:
        """Send the engine's replies to the application."""
        replies = communicator.engine.replies
        try:
            while replies and communicator.is_open:
                communicator.connection.send(work_queue.encode(replies[0]), _AT_ONCE)
                reply = replies.popleft()
                if not isinstance(reply, WorkCompletion):
                    self._count_failure(communicator, now)
                elif (posted := communicator.in_progress.pop(reply.number, None)) is not None:
                    self.counters.collectives_completed += 1
                    self.counters.collectives_microseconds += round((now - posted.time) * 1e6)
        except BlockingIOError:
            pass
        except OSError:  # the application has closed its end
            communicator.is_open = False
        if communicator.blocked != bool(replies):
            communicator.blocked = bool(replies)
            self._poller.modify(communicator.fd, _EDGES | (select.EPOLLOUT if communicator.blocked else 0))

    def _count_failure(self, communicator: OffloadedCommunicator, now: float) -> None:
        engine = communicator.engine
        failure = engine.failure
        if failure is not None:
            communicator.at_the_end = operations = [
                OperationInfo(number, header_of(posted.request).describe(), now - posted.time, 0, 0)
                for number, posted in list(communicator.in_progress.items())[:MAX_OPERATIONS]
            ]
            first = [those[0] for those in communicator.connections.values()]
            ports = [(ipv4.endpoint(each.local), ipv4.endpoint(each.peer)) for each in first]
            record = (engine.rank, engine.size, failure.rank, failure.text, 0.0, operations, ports, engine.mismatched)
            self._failures.append((now, FailedCommunicatorInfo(*record)))
        self.counters.communicators_failed += 1
        self.counters.collectives_failed += len(communicator.in_progress)
        communicator.in_progress.clear()

    # The end

    def end(self, stream: Stream, now: float) -> None:
        """End the communicator of a stream that the application has closed."""
        self._end(self._by_stream[stream], now)

    def _end(self, communicator: OffloadedCommunicator, now: float) -> None:
        self._touched.discard(communicator)
        del self._by_fd[communicator.fd]
        if self.turn is not None:
            self.turn.remove_engine(communicator.engine.steps.c)
        communicator.engine.leave(now)
        if communicator.in_progress:
            self._count_failure(communicator, now)
        self.counters.communicators -= 1
        self._poller.unregister(communicator.fd)
        communicator.connection.close()
        for stream in communicator.streams:
            stream.offloaded = False
            del self._by_stream[stream]
            self._drop(stream, now)

    def fail_stopped(self, stream: Stream, stopped_s: float, now: float) -> None:
        """Fail the communicator of a stream whose application has been stopped for this long."""
        communicator = self._by_stream[stream]
        rank = communicator.engine.rank
        communicator.engine.fail(now, rank, f"rank {rank} is lost: its process has been stopped for {stopped_s:.1f} s")
        self._touched.add(communicator)

    def on_local_stall(self, stalled_s: float, now: float) -> None:
        """Note that this NIC itself stalled: if peers have given it up meanwhile, they are not at fault."""
        self._local_fault_until = now + _LOCAL_FAULT_S
        for communicator in self._by_fd.values():
            rank = communicator.engine.rank
            communicator.engine.local_fault = f"the NIC of rank {rank} stalled for {stalled_s:.1f} s"

    def stop(self, now: float) -> None:
        """Fail all communicators: the NIC stops."""
        for communicator in self._by_fd.values():
            rank = communicator.engine.rank
            communicator.engine.fail(now, rank, f"the NIC of rank {rank} was stopped")
            self._report(communicator, now)
