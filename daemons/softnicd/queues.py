"""The queues of a NIC, as its control plane sees them: which one has a stream, and which one gets the next."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from softnic._native import ffi, lib
from softnic.packet import ipv4
from softnicd.inherited import Identity
from softnicd.queue import NicQueue
from softnicd.stream_pump import StreamPump
from softnicd.streams import Settings, Stream


class _Inboxes(NamedTuple):
    """One of each queue, and an array of them."""

    owned: list[Any]
    array: Any


def _inboxes(events: Sequence[int]) -> _Inboxes:
    """Return empty inboxes that are reported by these eventfds."""
    owned = [ffi.gc(lib.sn_inbox_new(event), lib.sn_inbox_free) for event in events]
    if not all(owned):
        raise MemoryError
    return _Inboxes(owned, ffi.new("sn_inbox *[]", owned))


class Queues(Sequence[NicQueue]):
    """`queues` of one NIC, which know each other from now on. Threads of all but the first begin with `start`."""

    def __init__(self, queues: Sequence[NicQueue]) -> None:
        self._queues = queues
        self.first = queues[0]
        self._by_turns = itertools.cycle(queues)
        for queue in queues:
            queue.streams.candidates = partial(self._candidates, queue.number)
        if len(queues) == 1:
            return
        events = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in queues]
        self._events = events
        self._inboxes, self._sealed = _inboxes(events), _inboxes(events)
        pumps = [queue.streams for queue in queues]
        for queue in queues:
            queue.streams.queues = pumps
            queue.steer(len(queues), self._inboxes.array, events[queue.number])
            if queue is not self.first:
                queue.host.tcp.share_ports(self.first.host.tcp)
            queue.share_sessions(queues, self._sealed.array)
        self.first.turn.others = queues[1:]

    def __getitem__(self, index: int) -> NicQueue:  # type: ignore[override]
        return self._queues[index]

    def __len__(self) -> int:
        return len(self._queues)

    def start(self) -> None:
        for queue in self._queues[1:]:
            queue.start()

    def stop(self) -> None:
        """The threads end. From now on, asyncio's alone works on the queues."""
        for queue in self._queues[1:]:
            queue.stop()

    def have_gone_on(self) -> bool:
        """Whether each thread has taken a turn since the last call, or waits for events."""
        return all([queue.has_gone_on() for queue in self._queues])

    @contextmanager
    def held(self) -> Iterator[None]:
        """All queues stand still between two turns, and have caught up."""
        with ExitStack() as stack:
            for queue in self._queues:
                stack.enter_context(queue.held())
            yield

    # Streams

    def with_stream(self, number: int) -> NicQueue:
        """Return the queue of a stream, closed ones included. Raises OSError (EBADF)."""
        for queue in self._queues:
            if queue.streams.table.knows(number):
                return queue
        raise OSError(errno.EBADF, f"the NIC has no stream {number}")

    @contextmanager
    def held_with(self, number: int) -> Iterator[tuple[StreamPump, Stream]]:
        """The queue of an open stream stands still. Raises OSError (EBADF)."""
        queue = self.with_stream(number)
        with queue.held():
            stream = queue.streams.table.get(number)
            if stream is None:
                raise OSError(errno.EBADF, f"the NIC has no stream {number}")
            yield queue.streams, stream

    @contextmanager
    def held_with_all(self, numbers: Sequence[int]) -> Iterator[tuple[StreamPump, dict[int, Stream]]]:
        """The queue of open streams, which have to be of one, stands still. Raises OSError (EBADF, EINVAL)."""
        queues = {self.with_stream(number) for number in numbers} or {self.first}
        if len(queues) > 1:
            raise OSError(errno.EINVAL, "the streams of a communicator are all on one lane (NIC_LANE)")
        [queue] = queues
        with queue.held():
            found = {number: queue.streams.table.get(number) for number in numbers}
            closed = [number for number, stream in found.items() if stream is None]
            if closed:
                raise OSError(errno.EBADF, f"the NIC has no stream {closed[0]}")
            yield queue.streams, {number: stream for number, stream in found.items() if stream is not None}

    def settings(self, number: int) -> Settings:
        """Return the options of a stream, closed ones included. Raises OSError (EBADF)."""
        settings = self.with_stream(number).streams.table.settings(number)
        if settings is None:
            raise OSError(errno.EBADF, f"the NIC has no stream {number}")
        return settings

    def identity(self, number: int) -> Identity | None:
        """Return the identity of a stream's application, closed streams included."""
        found = (queue.streams.table.identity(number) for queue in self._queues)
        return next((each for each in found if each is not None), None)

    # Placement

    def for_connection(self, local_port: int, target: tuple[int, int], lane: int) -> NicQueue:
        """Return the queue of a new connection: that of its local port (0: any), of its lane (-1: any), or by turns."""
        if local_port:
            own, (ip, port) = self.first.host.ip, target
            ip = own if ipv4.is_loopback(ip) else ip
            return self._queues[int(lib.sn_queue_of(own, ip, local_port, port, len(self._queues)))]
        return next(self._by_turns) if lane < 0 else self._queues[lane % len(self._queues)]

    def _candidates(self, queue: int, target: tuple[int, int], lane: int, start: int, end: int) -> Iterator[int]:
        """Return the local ports, from `start` to before `end`, that give a connection this queue, or this lane."""
        key = self.first.host.ip, *target
        wanted = (len(self._queues), queue) if lane < 0 else (lib.SN_FLOW_LANES, lane)
        while (start := lib.sn_next_port(*key, *wanted, start, end)) < end:
            yield start
            start += 1

    def reserve(self, port: int, reuse: bool, share: bool) -> int:
        """Reserve a local port, 0 for any, while all queues stand still. Raises OSError (EADDRINUSE)."""
        tcp, others = self.first.host.tcp, [queue.host.tcp for queue in self._queues[1:]]
        if port:
            if not (reuse or share) and any(each.is_connected_at(port) for each in others):
                raise OSError(errno.EADDRINUSE, f"port {port} of {ipv4.text(tcp.ip)} is in use")
            return tcp.reserve(port, reuse, share)
        unfit = []
        try:
            while True:
                port = tcp.reserve(0, reuse, share)
                if not any(each.is_connected_at(port) for each in others):
                    return port
                unfit.append(port)
        finally:
            for each in unfit:
                tcp.release(each)

    def close(self) -> None:
        for queue in self._queues:
            queue.close()
        if len(self._queues) > 1:
            for event in self._events:
                os.close(event)
