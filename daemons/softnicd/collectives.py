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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import msgspec

from softnic.collectives import CollectiveEngine, nbytes
from softnic.collectives.collective_op import WHOLE
from softnic.collectives.messages import header_of
from softnic.ipc import work_queue
from softnic.ipc.collectives_info import MAX_OPERATIONS, FailedCommunicatorInfo, OperationInfo
from softnic.ipc.work_queue import (
    MAX_PACKET,
    CancelRequest,
    LeaveRequest,
    StagedPart,
    WorkCompletion,
    WorkRequest,
)
from softnic.packet import ipv4
from softnic.tcp.connection import Connection
from softnic.tcp.peer_stream import peer_streams
from softnicd.communicators import OffloadedCommunicator, OffloadedLane, PostedCollective
from softnicd.lanes import LaneEngine, Lanes, Post, Reply
from softnicd.regions import Regions
from softnicd.relieved_connection import RelievedConnection
from softnicd.streams import Stream

_EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_AT_ONCE = socket.MSG_DONTWAIT
_LOCAL_FAULT_S = 1.0
"""After this NIC stalled: for the consequences at the peers to arrive."""
_FAILURES = 16
"""Failures of communicators that are remembered, for `softnic stat --why`."""

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


class OffloadedCollectives:
    """All communicators of a NIC. `drop` is called with each stream of one that has ended."""

    def __init__(self, poller: select.epoll, regions: Regions, drop: Callable[[Stream, float], None]) -> None:
        self.counters = OffloadCounters()
        self._poller = poller
        self._regions = regions
        self._drop = drop
        self._by_fd: dict[int, OffloadedCommunicator] = {}
        self._lanes: dict[OffloadedLane, None] = {}
        """Further lanes of communicators whose work queue is another queue's."""
        self._by_stream: dict[Stream, OffloadedCommunicator | OffloadedLane] = {}
        self._touched: set[OffloadedCommunicator | OffloadedLane] = set()
        """Communicators with an event to handle."""
        self._advanced: list[OffloadedCommunicator | OffloadedLane] = []
        """Communicators with possible replies."""
        self._failures: deque[tuple[float, FailedCommunicatorInfo]] = deque(maxlen=_FAILURES)
        """The latest, with their times."""
        self._local_fault_until = 0.0
        self._buffer = memoryview(bytearray(MAX_PACKET + 1))
        """For requests."""
        self.turn: EngineTurns | None = None
        """Moves the blocks of engines in C."""

    def __bool__(self) -> bool:
        return bool(self._by_fd or self._lanes)

    @property
    def _joined(self) -> Iterator[OffloadedCommunicator | OffloadedLane]:
        return chain(self._by_fd.values(), self._lanes)

    @property
    def _engines(self) -> Iterator[CollectiveEngine]:
        return (each.engine for each in self._joined)

    @property
    def communicators(self) -> Collection[OffloadedCommunicator]:
        """All that have joined and not ended."""
        return self._by_fd.values()

    @property
    def lanes(self) -> Collection[OffloadedLane]:
        """Further lanes of communicators, of which another queue has the first."""
        return self._lanes

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
        return bool(self._touched) or any(engine.needs_python for engine in self._engines)

    def join(
        self,
        fd: int,
        rank: int,
        streams: Sequence[Sequence[Stream | None]],
        now: float,
        process: Sequence[Stream | None] = (),
    ) -> OffloadedCommunicator:
        """Add a communicator, which owns the file descriptor from now on. Raises ValueError for unfit streams."""
        engine, own = _engine_over(rank, streams)
        connections = _carrying(rank, streams)
        relieved = [RelievedConnection(*pair, now) for pair in map(_relieving, process, streams[0]) if pair]
        communicator = OffloadedCommunicator(socket.socket(fileno=fd), engine, own, connections, relieved, now)
        self._by_fd[fd] = communicator
        self._take_over(communicator)
        self._poller.register(fd, _EDGES)
        self.counters.communicators += 1
        log.debug("rank %d of %d joins a communicator", rank, len(streams[0]))
        return communicator

    def join_lane(
        self,
        number: int,
        rank: int,
        streams: Sequence[Sequence[Stream | None]],
        report: Callable[[Reply], object],
        now: float,
    ) -> OffloadedLane:
        """Add a further lane of a communicator. Raises ValueError for unfit streams."""
        engine, own = _engine_over(rank, streams)
        lane = OffloadedLane(number, engine, own, _carrying(rank, streams), report, self._touched.add, now)
        self._lanes[lane] = None
        self._take_over(lane)
        return lane

    def lanes_beside(self, stream: Stream) -> Sequence[LaneEngine]:
        """Return the further lanes of the communicator of a stream. Raises ValueError."""
        communicator = self._communicator_of(stream)
        return () if communicator.lanes is None else communicator.lanes.engines

    def add_rank(
        self, beside: Stream, rank: int, streams: Sequence[Stream], process: Stream | None, now: float
    ) -> None:
        """Add the streams to one more rank to the communicator that has `beside`. Raises ValueError."""
        communicator = self._communicator_of(beside)
        communicator.add(rank, streams)
        self._own(communicator, streams)
        if pair := _relieving(process, streams[0]):
            communicator.relieved.append(RelievedConnection(*pair, now))

    def add_rank_to_lane(self, lane: LaneEngine, rank: int, streams: Sequence[Stream]) -> None:
        """Do the same for a further lane. Raises ValueError."""
        assert isinstance(lane, OffloadedLane)
        lane.add(rank, streams)
        self._own(lane, streams)

    def start_rank(self, stream: Stream, now: float) -> None:
        """Begin the exchange with the rank whose streams begin with this one. Raises ValueError."""
        communicator = self._communicator_of(stream)
        rank = communicator.rank_of(stream)
        communicator.start(rank, now)
        if communicator.lanes is not None:
            communicator.lanes.start_rank(rank, now)
        self._touched.add(communicator)

    def _communicator_of(self, stream: Stream) -> OffloadedCommunicator:
        joined = self._by_stream.get(stream)
        if not isinstance(joined, OffloadedCommunicator):
            raise ValueError(f"stream {stream.number} is no communicator's")
        return joined

    def _own(self, joined: OffloadedCommunicator | OffloadedLane, streams: Iterable[Stream]) -> None:
        for stream in streams:
            stream.offloaded = True
            self._by_stream[stream] = joined

    def _take_over(self, joined: OffloadedCommunicator | OffloadedLane) -> None:
        self._own(joined, joined.streams)
        if self.turn is not None:
            self.turn.add_engine(joined.engine.steps.c)
            joined.engine.steps.move_in_c = self.turn.move_engine
        self._touched.add(joined)

    def add_lanes(self, communicator: OffloadedCommunicator, others: Sequence[tuple[LaneEngine, Post]]) -> None:
        """Have these lanes execute parts of a communicator's collectives."""
        communicator.lanes, communicator.replies = Lanes(others), deque()

    def on_lane_reply(self, communicator: OffloadedCommunicator, lane: int, reply: Reply) -> None:
        """Take what a further lane reports."""
        assert communicator.lanes is not None
        outcome = communicator.lanes.on_reply(lane, reply)
        if isinstance(outcome, WorkCompletion):
            communicator.replies.append(outcome)
        elif outcome is not None:
            communicator.failing = outcome
        if self._by_fd.get(communicator.fd) is communicator:
            self._touched.add(communicator)

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
            for engine in self._engines:
                engine.local_fault = ""
        touched = set(self._touched)
        self._touched.clear()  # not replaced: lanes have its method `add`
        for each in list(self._joined):
            if each in touched or each.engine.is_busy:
                self._advance(each, now)

    def next_time(self) -> float | None:
        """Return when `advance` has something to do, if nothing happens before."""
        first: float | None = None
        for engine in self._engines:
            time = engine.next_time()
            if time is not None and (first is None or time < first):
                first = time
        return first

    def _advance(self, joined: OffloadedCommunicator | OffloadedLane, now: float) -> None:
        engine = joined.engine
        try:
            if joined.failing is not None:
                engine.fail(now, joined.failing.rank, joined.failing.text)
            if isinstance(joined, OffloadedCommunicator):
                self._read_requests(joined, now)
            else:
                joined.note_posted(now)
            engine.advance(now)
        except Exception:
            log.exception("internal error of a collective engine")
            engine.fail(now, engine.rank, f"internal error in the NIC of rank {engine.rank}: its log has details")
        if isinstance(joined, OffloadedCommunicator):
            for each in [each for each in joined.relieved if each.is_due]:
                joined.relieved.remove(each)
                each.end_relief(now)
        self._advanced.append(joined)

    def report(self, now: float) -> None:
        """Send replies, and end what applications have closed: last in a turn, since what wakes an application may take
        the processor from this one."""
        advanced, self._advanced = self._advanced, []
        for each in advanced:
            if isinstance(each, OffloadedLane):
                if each in self._lanes:
                    self._report_lane(each, now)
                continue
            if self._by_fd.get(each.fd) is not each:
                continue
            self._report(each, now)
            if not each.is_open:
                self._end(each, now)
            elif each.can_read:
                self._touched.add(each)

    def _report_lane(self, lane: OffloadedLane, now: float) -> None:
        """Tell the first lane what is complete, or has failed."""
        self._pass_on(lane)
        if lane.is_ending:
            self._end_lane(lane, now)

    def _pass_on(self, lane: OffloadedLane) -> None:
        while lane.engine.replies:
            reply = lane.engine.replies.popleft()
            if isinstance(reply, WorkCompletion):
                lane.times.pop(reply.number, None)
            else:
                lane.times.clear()
            lane.report(reply)

    # The work queue

    def _read_requests(self, communicator: OffloadedCommunicator, now: float) -> None:
        """Read requests while the engine has space for them."""
        while communicator.can_read:
            try:
                size = communicator.connection.recv_into(self._buffer, 0, _AT_ONCE)
            except BlockingIOError:
                communicator.readable = False
                return
            except OSError:
                size = 0
            if not size:
                communicator.is_open = False
                return
            try:
                self._handle(communicator, self._buffer[:size], now)
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
        if isinstance(request, LeaveRequest):
            communicator.has_left = True
        elif isinstance(request, CancelRequest) and not request.number:
            engine.give_up(request, "the communicator", now)
        elif isinstance(request, CancelRequest):
            engine.cancel(request, now)
            if communicator.lanes is not None and (call := communicator.lanes.call_of(request.number)):
                engine.give_up(request, call, now)  # if its own part was complete
        elif engine.failure is not None:
            if isinstance(request, WorkRequest) and len(communicator.at_the_end) < MAX_OPERATIONS:
                communicator.at_the_end.append(OperationInfo(request.number, header_of(request).describe(), 0.0, 0, 0))
        elif isinstance(request, WorkRequest):
            size, lanes = nbytes(request), communicator.lanes
            memory = self._memory(*request.source, size), self._memory(*request.result, size)
            part = WHOLE if lanes is None else lanes.part_of(request)
            engine.post(request, *memory, part)
            if lanes is not None and part is not WHOLE:
                lanes.begin(request, *memory)
            communicator.in_progress[request.number] = PostedCollective(now, request)
            self.counters.collectives_posted += 1
        elif isinstance(request, StagedPart):
            own = request if communicator.lanes is None else communicator.lanes.stage(request)
            if own is not None:
                engine.stage(own)
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
        """Send what is complete, or has failed, to the application."""
        replies = communicator.replies
        if communicator.lanes is not None:
            replies.extend(communicator.lanes.merge(communicator.engine.replies))
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
        """End the communicator, or the lane, of a stream that the application has closed."""
        joined = self._by_stream[stream]
        if isinstance(joined, OffloadedLane):
            self._end_lane(joined, now)
        else:
            self._end(joined, now)

    def _end(self, communicator: OffloadedCommunicator, now: float) -> None:
        del self._by_fd[communicator.fd]
        self._leave(communicator, now, has_said_so=communicator.has_left or _says_leave(communicator.connection))
        if communicator.in_progress:
            self._count_failure(communicator, now)
        self.counters.communicators -= 1
        self._poller.unregister(communicator.fd)
        if communicator.lanes is None:
            communicator.connection.close()
        else:
            communicator.lanes.end(communicator.connection.close)
        self._drop_streams(communicator, now)

    def _end_lane(self, lane: OffloadedLane, now: float) -> None:
        del self._lanes[lane]
        self._leave(lane, now, has_said_so=True)
        self._pass_on(lane)
        lane.report(None)
        self._drop_streams(lane, now)

    def _leave(self, joined: OffloadedCommunicator | OffloadedLane, now: float, *, has_said_so: bool) -> None:
        self._touched.discard(joined)
        if self.turn is not None:
            self.turn.remove_engine(joined.engine.steps.c)
        joined.engine.leave(now, has_said_so=has_said_so)

    def _drop_streams(self, joined: OffloadedCommunicator | OffloadedLane, now: float) -> None:
        for stream in joined.streams:
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
        for engine in self._engines:
            engine.local_fault = f"the NIC of rank {engine.rank} stalled for {stalled_s:.1f} s"

    def stop(self, now: float) -> None:
        """Fail all communicators: the NIC stops."""
        for engine in self._engines:
            engine.fail(now, engine.rank, f"the NIC of rank {engine.rank} was stopped")
        for communicator in self._by_fd.values():
            if communicator.lanes is not None:
                communicator.lanes.abandon()
            self._report(communicator, now)


def _engine_over(rank: int, streams: Sequence[Sequence[Stream | None]]) -> tuple[CollectiveEngine, list[Stream]]:
    """Return an engine over streams, by kind and rank, and all of these. Raises ValueError for unfit ones."""
    control, data, *messages = (
        peer_streams({other: s.connection for other, s in enumerate(side) if s and s.connection}) for side in streams
    )
    pairs = {other: (messages[0][other], messages[1][other]) for other in messages[0]} if messages else {}
    engine = CollectiveEngine(rank, len(streams[0]), control, data, pairs)
    return engine, [stream for stream in chain.from_iterable(streams) if stream is not None]


def _carrying(rank: int, streams: Sequence[Sequence[Stream | None]]) -> dict[int, list[Connection]]:
    """Return the connections below streams other than those of headers, by rank."""
    return {
        other: [s.connection for s in (side[other] for side in streams[1:]) if s and s.connection]
        for other in range(len(streams[0]))
        if other != rank and streams[0][other]
    }


def _relieving(process: Stream | None, watched: Stream | None) -> tuple[Connection, Connection] | None:
    """Return the process's connection to a rank and the probed one that relieves it; None where there is none."""
    if process and watched and process.connection and watched.connection and watched.connection.keepalive:
        return process.connection, watched.connection
    return None


def _says_leave(connection: socket.socket) -> bool:
    """Return whether what is unread of a work queue says that the process leaves."""
    with suppress(OSError, ValueError):  # the end, or what is not a request
        while packet := connection.recv(MAX_PACKET, _AT_ONCE):
            if isinstance(work_queue.decode_from_process(packet), LeaveRequest):
                return True
    return False
