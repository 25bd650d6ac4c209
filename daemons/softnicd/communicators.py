"""Communicators whose collectives this NIC executes: the first lane with its work queue, and further lanes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from softnic.collectives import CollectiveEngine
from softnic.collectives.collective_op import LanePart
from softnic.collectives.progress import links_of
from softnic.ipc.collectives_info import OperationInfo, RankLinkInfo
from softnic.ipc.work_queue import MAX_WORK_REQUESTS, StagedPart, WorkFailed, WorkRequest
from softnic.tcp.connection import Connection
from softnic.tcp.peer_stream import peer_streams
from softnicd.lanes import Lanes, Reply
from softnicd.relieved_connection import RelievedConnection
from softnicd.streams import Stream

Connections = dict[int, list[Connection]]


class PostedCollective(NamedTuple):
    time: float
    request: WorkRequest


class JoinedRanks:
    """The streams of an engine to other ranks, of which more may come. `streams` are those of all ranks."""

    __slots__ = ("_awaited", "connections", "engine", "streams")

    def __init__(self, engine: CollectiveEngine, streams: Sequence[Stream], connections: Connections) -> None:
        self.engine = engine
        self.streams = list(streams)
        self.connections = connections
        """Below the streams of blocks and of messages, by rank."""
        self._awaited: dict[int, Sequence[Stream]] = {}
        """Streams to ranks whose NICs may not have their ends, by rank."""

    def add(self, rank: int, streams: Sequence[Stream]) -> None:
        """Take the streams to one more rank. Raises ValueError for unfit ones."""
        if rank in self.connections or rank in self._awaited or len(streams) not in (2, 4):
            raise ValueError(f"the communicator takes no {len(streams)} streams to rank {rank}")
        self._awaited[rank] = streams
        self.streams += streams

    def rank_of(self, stream: Stream) -> int:
        """Return the rank whose streams begin with this one, and that has not been started. Raises ValueError."""
        for rank, (first, *_) in self._awaited.items():
            if first is stream:
                return rank
        raise ValueError(f"stream {stream.number} is not the first one to a rank that waits")

    def start(self, rank: int, now: float) -> None:
        """Exchange messages and blocks with a rank that was added."""
        connections = [each.connection for each in self._awaited.pop(rank, ()) if each.connection]
        if len(connections) < 2:
            return  # it has been closed
        self.connections[rank] = connections[1:]
        control, data, *messages = (peer_streams({rank: each})[rank] for each in connections)
        self.engine.connect(now, rank, control, data, messages)


class OffloadedCommunicator(JoinedRanks):
    """The NIC's side of one work queue. `connection` is its end of the socket, which it closes."""

    lane = 0

    __slots__ = (
        "at_the_end", "blocked", "connection", "failing", "fd", "has_left", "in_progress", "is_open", "lanes",
        "posted_at", "readable", "relieved", "replies",
    )  # fmt: skip

    def __init__(
        self,
        connection: socket.socket,
        engine: CollectiveEngine,
        streams: Sequence[Stream],
        connections: Connections,
        relieved: list[RelievedConnection],
        now: float,
    ) -> None:
        super().__init__(engine, streams, connections)
        connection.setblocking(False)
        self.connection = connection
        self.fd = connection.fileno()
        self.is_open = True
        """The application has its end open."""
        self.has_left = False
        """It has said that it closes it."""
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
        self.relieved = relieved
        """The process's own, while those of the engine are probed in their place."""
        self.lanes: Lanes | None = None
        """Further lanes, which execute parts of its collectives."""
        self.failing: WorkFailed | None = None
        """Why a lane has failed."""
        self.replies = engine.replies
        """To be sent to the application."""

    def links(self, now: float) -> list[RankLinkInfo]:
        """Return what this rank exchanges with each other one."""
        return _links(self, now)

    @property
    def is_busy(self) -> bool:
        """Whether collectives are in progress."""
        return bool(self.in_progress)

    @property
    def times(self) -> dict[int, float]:
        """When each collective in progress was posted, by number."""
        return {number: posted.time for number, posted in self.in_progress.items()}

    @property
    def can_read(self) -> bool:
        """Whether it would read a request without waiting for anything else."""
        lanes_have_space = self.lanes is None or len(self.in_progress) < MAX_WORK_REQUESTS
        return self.is_open and self.readable and self.engine.space > 0 and lanes_have_space


class OffloadedLane(JoinedRanks):
    """A further lane of a communicator, in its own queue. `report` tells the first lane what becomes of its parts."""

    __slots__ = ("_touch", "failing", "is_ending", "lane", "posted_at", "report", "times")

    def __init__(
        self,
        lane: int,
        engine: CollectiveEngine,
        streams: Sequence[Stream],
        connections: Connections,
        report: Callable[[Reply], object],
        touch: Callable[[OffloadedLane], object],
        now: float,
    ) -> None:
        super().__init__(engine, streams, connections)
        self.lane = lane
        self.report = report
        self._touch = touch
        self.posted_at = now
        """When the last part came."""
        self.times: dict[int, float] = {}
        """When each part in progress came, by number."""
        self.failing: WorkFailed | None = None
        """Why it is to fail."""
        self.is_ending = False

    @property
    def is_busy(self) -> bool:
        """Whether parts are in progress."""
        return bool(self.times)

    def links(self, now: float) -> list[RankLinkInfo]:
        """Return what this rank exchanges with each other one on this lane."""
        return _links(self, now)

    def note_posted(self, now: float) -> None:
        """Note when parts have come."""
        for op in self.engine.operations:
            if op.number not in self.times:
                self.times[op.number] = self.posted_at = now

    def begin(self, request: WorkRequest, source: memoryview, result: memoryview, part: LanePart) -> None:
        """Execute this part of a collective."""
        try:
            self.engine.post(request, source, result, part)
        except ValueError as error:  # the first lane has taken it
            self.failing = WorkFailed(self.engine.rank, str(error))
        self._touch(self)

    def stage(self, part: StagedPart) -> None:
        """Note that a part of a contribution is there."""
        try:
            self.engine.stage(part)
        except ValueError as error:
            self.failing = WorkFailed(self.engine.rank, str(error))
        self._touch(self)

    def fail(self, rank: int, text: str) -> None:
        self.failing = WorkFailed(rank, text)
        self._touch(self)

    def start_rank(self, rank: int, now: float) -> None:
        """Exchange blocks with a rank that was added."""
        self.start(rank, now)
        self._touch(self)

    def end(self) -> None:
        """Close the streams."""
        self.is_ending = True
        self._touch(self)


def _links(joined: OffloadedCommunicator | OffloadedLane, now: float) -> list[RankLinkInfo]:
    infos = {rank: [each.info(now) for each in those] for rank, those in joined.connections.items()}
    return links_of(joined.engine, infos)
