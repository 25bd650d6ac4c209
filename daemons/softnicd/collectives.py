"""Groups: collectives that this NIC executes for programs (softnic/ipc/work_queue.py).

A group is an executor over connections whose streams a program handed over, and the group socket that the program
posts to. Posts are read only while the executor takes some. The group ends when the program closes the group socket or
one of the streams, or breaks a rule; all of its connections end with it, and no memory is held on to.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from softnic.collectives import CollectiveEngine, nbytes
from softnic.ipc import work_queue
from softnic.ipc.work_queue import MAX_PACKET, CancelRequest, WorkCompletion, WorkRequest
from softnic.tcp.peer_stream import peer_streams
from softnicd.regions import Regions
from softnicd.streams import Stream

_EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_AT_ONCE = socket.MSG_DONTWAIT
_EXCUSED_S = 1.0
"""After the NIC stood still: for what the peers have made of that to arrive."""
_BUFFER = memoryview(bytearray(MAX_PACKET + 1))

log = logging.getLogger("softnicd")


@dataclass(slots=True)
class GroupCounters:
    groups: int = 0
    """Joined and not over."""
    groups_failed: int = 0
    collectives_posted: int = 0
    collectives_completed: int = 0
    collectives_failed: int = 0
    """Posted, and not complete when their group failed."""
    posts_malformed: int = 0
    """Groups ended because of a message that breaks a rule."""


class OffloadedCommunicator:
    """`end` is the NIC's end of the group socket, and the group's to close."""

    __slots__ = ("blocked", "descriptor", "executor", "open", "readable", "socket", "streams", "waiting")

    def __init__(self, end: socket.socket, executor: CollectiveEngine, streams: list[Stream]) -> None:
        end.setblocking(False)
        self.socket = end
        self.descriptor = end.fileno()
        self.executor = executor
        self.streams = streams
        self.open = True
        """The program holds its end."""
        self.readable = True
        """Messages, or their end, may wait in the socket."""
        self.blocked = False
        """The program does not take its replies; the poller tells when it does."""
        self.waiting = 0
        """Posted, and the program was not told yet what became of it."""

    @property
    def hungry(self) -> bool:
        """Whether it would read, without anything else happening before."""
        return self.open and self.readable and self.executor.space > 0


class OffloadedCollectives:
    """All communicators of a NIC. `drop` is called with each stream of one that has ended."""

    def __init__(self, poller: select.epoll, regions: Regions, drop: Callable[[Stream, float], None]) -> None:
        self.counters = GroupCounters()
        self._poller = poller
        self._regions = regions
        self._drop = drop
        self._groups: dict[int, OffloadedCommunicator] = {}
        """By descriptor."""
        self._by_stream: dict[Stream, OffloadedCommunicator] = {}
        self._touched: set[OffloadedCommunicator] = set()
        """Something happened to them."""
        self._excused_until = 0.0

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def has_work(self) -> bool:
        """Whether it would go on at once."""
        return bool(self._touched)

    def join(self, descriptor: int, rank: int, words: Sequence[Stream | None], data: Sequence[Stream | None]) -> None:
        """A new group; the descriptor is the group's from now on. Raises ValueError for streams that make none."""
        connections = [
            {other: stream.connection for other, stream in enumerate(streams) if stream and stream.connection}
            for streams in (words, data)
        ]
        control, blocks = (peer_streams(found) for found in connections)
        executor = CollectiveEngine(rank, len(words), control, blocks)
        streams = [stream for stream in (*words, *data) if stream is not None]
        group = OffloadedCommunicator(socket.socket(fileno=descriptor), executor, streams)
        for stream in streams:
            stream.offloaded = True
            self._by_stream[stream] = group
        self._groups[descriptor] = group
        self._poller.register(descriptor, _EDGES)
        self._touched.add(group)
        self.counters.groups += 1
        log.debug("rank %d of %d joins a group", rank, len(words))

    def handle(self, descriptor: int, mask: int) -> bool:
        """Takes what epoll says of a descriptor. Returns whether it is a group's."""
        group = self._groups.get(descriptor)
        if group is None:
            return False
        if mask & ~select.EPOLLOUT:
            group.readable = True
        self._touched.add(group)
        return True

    def touch(self, stream: Stream) -> None:
        """Something happened to a connection of a communicator."""
        self._touched.add(self._by_stream[stream])

    def advance(self, now: float) -> None:
        """To be called between what the node receives and what it sends."""
        if self._excused_until and now >= self._excused_until:
            self._excused_until = 0.0
            for group in self._groups.values():
                group.executor.local_fault = ""
        touched, self._touched = self._touched, set()
        for group in list(self._groups.values()):
            if group in touched or group.executor.is_busy:
                self._advance(group, now)

    def next_time(self) -> float | None:
        times = [group.executor.next_time() for group in self._groups.values()]
        return min((time for time in times if time is not None), default=None)

    def _advance(self, group: OffloadedCommunicator, now: float) -> None:
        try:
            self._read(group, now)
            group.executor.advance(now)
        except Exception:
            log.exception("a group failed for a reason of ours")
            rank = group.executor.rank
            group.executor.fail(now, rank, f"the NIC of rank {rank} failed at this: its log says more")
        self._say(group)
        if not group.open:
            self._end(group, now)
        elif group.hungry:
            self._touched.add(group)

    # -- the group socket ----------------------------------------------------------------------------------------------

    def _read(self, group: OffloadedCommunicator, now: float) -> None:
        """What the program posted, as far as there is room for it."""
        while group.hungry:
            try:
                size = group.socket.recv_into(_BUFFER, 0, _AT_ONCE)
            except BlockingIOError:
                group.readable = False
                return
            except OSError:
                size = 0
            if not size:
                group.open = False
                return
            try:
                self._take(group, _BUFFER[:size], now)
            except ValueError as error:
                self.counters.posts_malformed += 1
                rank = group.executor.rank
                group.executor.fail(now, rank, f"rank {rank} asked its NIC for what cannot be: {error}")

    def _take(self, group: OffloadedCommunicator, packet: memoryview, now: float) -> None:
        """Raises ValueError for what no program sends."""
        try:
            message = work_queue.decode_from_process(packet)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"this is no message to a NIC: {error}") from None
        if isinstance(message, CancelRequest):
            group.executor.cancel(message.number, now)
        elif isinstance(message, WorkRequest) and group.executor.failure is None:
            size = nbytes(message)
            source, result = self._memory(*message.source, size), self._memory(*message.result, size)
            group.executor.post(message, source, result)
            group.waiting += 1
            self.counters.collectives_posted += 1

    def _memory(self, number: int, offset: int, size: int) -> memoryview:
        region = self._regions.get(number)
        if region is None:
            raise ValueError(f"the NIC has no region {number}")
        if not 0 <= offset <= offset + size <= len(region):
            raise ValueError(f"bytes {offset} to {offset + size} of a region that has {len(region)}")
        return region[offset : offset + size]

    def _say(self, group: OffloadedCommunicator) -> None:
        """Tells the program what the executor has for it."""
        replies, counters = group.executor.replies, self.counters
        try:
            while replies and group.open:
                group.socket.send(work_queue.encode(replies[0]), _AT_ONCE)
                if isinstance(replies.popleft(), WorkCompletion):
                    counters.collectives_completed += 1
                    group.waiting -= 1
                else:
                    self._failed(group)
        except BlockingIOError:
            pass
        except OSError:  # it has closed its end
            group.open = False
        if group.blocked != bool(replies):
            group.blocked = bool(replies)
            self._poller.modify(group.descriptor, _EDGES | (select.EPOLLOUT if group.blocked else 0))

    def _failed(self, group: OffloadedCommunicator) -> None:
        self.counters.groups_failed += 1
        self.counters.collectives_failed += group.waiting
        group.waiting = 0

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self, stream: Stream, now: float) -> None:
        """The application has closed a stream of a communicator."""
        self._end(self._by_stream[stream], now)

    def _end(self, group: OffloadedCommunicator, now: float) -> None:
        self._touched.discard(group)
        del self._groups[group.descriptor]
        group.executor.leave(now)
        if group.waiting:
            self._failed(group)
        self.counters.groups -= 1
        self._poller.unregister(group.descriptor)
        group.socket.close()
        for stream in group.streams:
            stream.offloaded = False
            del self._by_stream[stream]
            self._drop(stream, now)

    def fail_stopped(self, stream: Stream, stood_s: float, now: float) -> None:
        """Fails the communicator of a stream whose application has been stopped for `stood_s`."""
        group = self._by_stream[stream]
        rank = group.executor.rank
        group.executor.fail(now, rank, f"rank {rank} is lost: its program has been stopped for {stood_s:.1f} s")
        self._touched.add(group)

    def on_local_stall(self, stood_s: float, now: float) -> None:
        """This NIC did nothing for so long. If peers have given it up meanwhile, none of them is at fault."""
        self._excused_until = now + _EXCUSED_S
        for group in self._groups.values():
            rank = group.executor.rank
            group.executor.local_fault = f"the NIC of rank {rank} stood still for {stood_s:.1f} s"

    def stop(self, now: float) -> None:
        """The NIC stops: everybody is told."""
        for group in self._groups.values():
            rank = group.executor.rank
            group.executor.fail(now, rank, f"the NIC of rank {rank} was stopped")
            self._say(group)
