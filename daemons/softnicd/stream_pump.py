"""Stream pump: what turns leave of applications' streams: connections, ends, errors, and bytes that go with them.

Applications' bytes are pulled first, then received bytes and TCP's events are delivered; turn.py says when. A failure
of one stream ends that stream only.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from softnic.nic.node import Node
from softnic.packet import ipv4
from softnic.tcp.connection import Closed, Connection, Established, Readable, Writable
from softnic.tcp.events import EchoReply
from softnic.tcp.listener import AcceptReady, Listener
from softnic.tcp.liveness import PeerFound, PeerLost
from softnic.tcp.state import State
from softnicd.collectives import OffloadedCollectives
from softnicd.communicators import OffloadedCommunicator
from softnicd.event_log import EventLog
from softnicd.inherited import identity
from softnicd.lanes import LaneEngine, Post, Reply
from softnicd.regions import Regions
from softnicd.stream_table import StreamTable
from softnicd.streams import Stream

LOOPBACK = 127 << 24 | 1
"""127.0.0.1."""
RETRY_S = 0.1
"""Delay after running out of file descriptors."""
_ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

log = logging.getLogger("softnicd")


class StreamPump:
    """The streams of a queue. `now` is its clock, `numbers` has those of its streams, and it calls functions that are
    `post`ed to it between two turns."""

    def __init__(
        self,
        node: Node,
        poller: select.epoll,
        regions: Regions,
        event_log: EventLog,
        now: Callable[[], float],
        numbers: Iterator[int],
        post: Callable[[Callable[[], object]], None],
    ) -> None:
        self.host = node.host
        self.now = now
        self.post = post
        self.queues: Sequence[StreamPump] = (self,)
        """The streams of all queues of the NIC."""
        self.candidates: Callable[[tuple[int, int], int, int, int], Iterable[int]] = lambda _to, _lane, *ports: range(
            *ports
        )
        """Returns the local ports, from the third to before the fourth number, that a connection to an address may have
        in this queue and on a lane (-1: any)."""
        self.table = StreamTable(node, poller, numbers)
        self.offloaded = OffloadedCollectives(poller, regions, self.drop)
        self.retry_at: float | None = None
        """When connections are handed over again, after file descriptors ran out."""
        self._node = node
        self._regions = regions
        self._event_log = event_log
        self.pulling: set[Stream] = set()
        """Streams with bytes that TCP may take."""

    # -- turns -----------------------------------------------------------------------------------------------------

    @property
    def has_input(self) -> bool:
        return bool(self.pulling) or self.retry_at is not None

    @property
    def has_output(self) -> bool:
        return bool(self.host.events)

    @property
    def has_work(self) -> bool:
        """Whether another turn would do something at once."""
        return bool(self.pulling) or bool(self.host.events)

    def on_event(self, stream: Stream, mask: int) -> None:
        """Takes an epoll event of a stream's file descriptor."""
        if mask & _ENDS:
            stream.ending = True
            stream.hung_up = stream.hung_up or bool(mask & ~select.EPOLLRDHUP & _ENDS)
        if mask & ~select.EPOLLOUT:
            stream.readable = True
            self.pulling.add(stream)
        if mask & select.EPOLLOUT:
            if stream.listens:
                self._hand_over(stream)
                for other in self.queues:
                    listener = other.table.listeners.get(stream)
                    if other is not self and listener is not None and listener.queue:
                        other.post(partial(other._hand_over, stream))
            else:
                stream.push()
                if stream.failed and not stream.blocked:
                    self.drop(stream, self.now())

    def pull(self, now: float) -> None:
        """Moves applications' bytes to TCP."""
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None
            for stream in list(self.table.by_listener.values()):
                self._hand_over(stream)
        for stream in list(self.pulling):
            if stream in self.pulling:  # else its communicator has ended in this loop
                try:
                    self._pull(stream, now)
                except Exception as error:
                    self._fail(stream, now, error)

    def _pull(self, stream: Stream, now: float) -> None:
        if not stream.pull():
            self.pulling.discard(stream)
        if stream.offloaded:
            if stream.hung_up:
                self.offloaded.end(stream, now)
                self._node.send(now)  # its last messages: whatever arrives from now on is answered by resets
        elif stream.finished:
            self._on_application_close(stream, now)

    def deliver(self, now: float) -> None:
        """Passes on what TCP has for the applications."""
        events = self.host.events
        while events:
            event = events.popleft()
            if isinstance(event, AcceptReady):
                listening = self.table.by_listener.get(event.listener)
                if listening is not None:
                    self._hand_over(listening)
            elif isinstance(event, PeerLost | PeerFound):
                self._event_log.peer_event(event)
            elif not isinstance(event, EchoReply):
                self._deliver(event, now)

    def _deliver(self, event: Established | Readable | Writable | Closed, now: float) -> None:
        stream = self.table.by_connection.get(event.connection)
        if stream is None:
            if isinstance(event, Closed):
                self.table.connection_closed(event.connection, now)
            elif isinstance(event, Readable):
                self._on_deferred(event.connection)
            return
        try:
            if stream.offloaded:
                self.offloaded.touch(stream)
            elif isinstance(event, Readable):
                stream.push()
            elif isinstance(event, Closed):
                self._on_closed(stream, event.errno, now)
            else:
                self.pulling.add(stream)
        except Exception as error:
            self._fail(stream, now, error)

    def _on_closed(self, stream: Stream, error: int, now: float) -> None:
        stream.push()
        if error and stream.write_blocker and not stream.hung_up and stream.discard_unsent():
            self.table.fail_connect(stream, now)  # the application may connect again
        elif error and stream.blocked and not stream.hung_up:
            # What arrived before the error can be read, as with the kernel's sockets. Writers get the error at once.
            self.table.detach(stream)
            self.pulling.discard(stream)
            stream.input_open = False
            stream.shut(socket.SHUT_RD)
        elif error or not stream.output_open:
            self.drop(stream, now)

    # -- streams ---------------------------------------------------------------------------------------------------

    def connect(self, stream: Stream, target: tuple[int, int]) -> None:
        """Starts a connection. Raises OSError."""
        now = self.now()
        (ip, port), own = target, self.host.ip
        inward = ipv4.is_loopback(ip) or ipv4.is_loopback(stream.ip)
        stream.loopback = (stream.ip or LOOPBACK, ip) if inward else None
        stream.write_blocker = stream.unread()
        there = own if ipv4.is_loopback(ip) else ip, port
        candidates = partial(self.candidates, there, stream.settings.lane)
        self.table.attach(stream, self.host.connect(*there, now, stream.port, candidates))
        stream.apply(now)
        log.debug("stream %d connects to %s:%d", stream.number, ipv4.text(target[0]), target[1])

    def listen(self, stream: Stream, backlog: int) -> None:
        """Listens in all queues, which stand still. Raises OSError."""
        listeners: list[Listener] = []

        def unaccepted_beside(index: int) -> int:
            beside = listeners[:index] + listeners[index + 1 :]
            return stream.unaccepted() + sum(len(each.queue) for each in beside)

        try:
            for index, each in enumerate(self.queues):
                unaccepted = partial(unaccepted_beside, index)
                listeners.append(each.host.listen(stream.ip, stream.port, backlog, self.now(), unaccepted))
                each.table.add_listener(stream, listeners[index])
        except OSError:
            for each in self.queues:
                each._stop_listening(stream)
            raise
        stream.listen(listeners)
        stream.apply(self.now())
        log.debug("stream %d listens at port %d", stream.number, stream.port)

    def move(self, stream: Stream, other: StreamPump) -> None:
        """Makes a stream without a connection one of another queue, while both stand still."""
        self.pulling.discard(stream)
        self.table.move(stream, other.table)

    def _stop_listening(self, stream: Stream) -> None:
        """Closes the listener of a stream in this queue."""
        listener = self.table.remove_listener(stream)
        if listener is not None:
            listener.close(self.now())

    def _stop_listening_for(self, stream: Stream, owner: StreamPump) -> None:
        """Closes the listener here of another queue's stream, whose file descriptor may then be closed."""
        self._stop_listening(stream)
        owner.post(stream.let_go)

    def _hand_over(self, listening: Stream) -> None:
        """Hands an application the connections that it is ready to accept."""
        listener = self.table.listeners.get(listening)
        while listener is not None and (connection := self._acceptable(listening)) and listening.takes_connection():
            try:
                if self.table.full:
                    raise OSError(errno.ENOBUFS, "too many streams")
                nic_end, application_end = socket.socketpair()
            except OSError as error:
                self._event_log.exhausted(f"cannot hand over a connection: {error.strerror}")
                self.retry_at = self.now() + RETRY_S
                return
            stream = self.table.add(nic_end.detach(), listening.settings)
            listener.queue.remove(connection)  # after all that may fail for lack of memory
            now = self.now()
            stream.pid = listening.pid
            stream.identity = identity(application_end.fileno())
            stream.loopback = self.table.loopback_of(connection)
            self.table.attach(stream, connection)
            stream.apply(now)
            with application_end:
                try:
                    peer = stream.loopback[1] if stream.loopback else connection.peer[0]
                    stream.introduce((peer, connection.peer[1]), listening)
                    listening.send_accepted(application_end)
                except BlockingIOError:  # another queue was first: the next event of the listening stream has it go on
                    self.table.withdraw(stream)
                    listener.queue.appendleft(connection)
                    return
                except OSError:  # the application has closed its end meanwhile
                    connection.abort(now)
                    self.drop(stream, now)
                    continue
            stream.push()
            self.pulling.add(stream)
            if connection.state is State.CLOSED:  # it failed in the backlog; the application learns why from its status
                self.drop(stream, now)

    def _offer_again(self, stream: Stream) -> None:
        """Hands over a connection again whose file descriptor was closed before the application had accepted it."""
        connection, listening = stream.connection, stream.accepted_at
        assert connection is not None
        assert listening is not None
        self.pulling.discard(stream)
        self.table.withdraw(stream)
        self.table.listeners[listening].queue.appendleft(connection)
        self._hand_over(listening)

    def _acceptable(self, listening: Stream) -> Connection | None:
        """Returns the first connection that may be accepted: with TCP_DEFER_ACCEPT, one that has data."""
        listener, defer_s = self.table.listeners.get(listening), listening.settings.defer_accept_s
        if listener is None or not listener.queue:
            return None
        if not defer_s:
            return listener.queue[0]
        for connection in listener.queue:
            due = connection.unacked_since + defer_s  # nothing was sent since the handshake
            if connection.rcv.unread or connection.eof or connection.state is State.CLOSED or self.now() >= due:
                return connection
            self.retry_at = due if self.retry_at is None else min(self.retry_at, due)
        return None

    def _on_deferred(self, connection: Connection) -> None:
        """Hands over a connection that its listener has kept until it had data."""
        for listener, listening in self.table.by_listener.items():
            if listening.settings.defer_accept_s and connection in listener.queue:
                self._hand_over(listening)
                return

    def _on_application_close(self, stream: Stream, now: float) -> None:
        if stream.was_not_accepted:
            self._offer_again(stream)
            return
        stream.close_connection(now)
        self.drop(stream, now)

    def _fail(self, stream: Stream, now: float, error: Exception) -> None:
        """Ends one stream after an exception."""
        why, number = "the NIC has no memory left for it", errno.ENOMEM
        if isinstance(error, MemoryError):
            self._event_log.exhausted(f"stream {stream.number} was ended: {why}", "streams ended for lack of memory")
        else:
            self._event_log.internal_error(f"internal error in stream {stream.number}")
            why, number = "internal error of the NIC: its log says more", errno.EIO
        if stream.offloaded:
            self.offloaded.end(stream, now)
        elif stream.connection is not None:
            stream.connection.abort(now, number, why)
        if stream.number in self.table.streams:
            self.drop(stream, now)

    def abort(self, stream: Stream, error: int, why: str, now: float) -> None:
        """Ends a stream with an error for its application."""
        log.debug("stream %d: %s", stream.number, why)
        if stream.connection is not None:
            stream.connection.abort(now, error, why)
        self.drop(stream, now)

    def drop(self, stream: Stream, now: float) -> None:
        """Removes a stream that is over."""
        self.pulling.discard(stream)
        if stream.listens:
            self._stop_listening(stream)
            others = [each for each in self.queues if each is not self]
            stream.users = len(others)
            for each in others:
                each.post(partial(each._stop_listening_for, stream, self))
        if stream.port:
            self._release(stream.port)
        self.table.drop(stream, now)
        log.debug("stream %d is over", stream.number)

    def _release(self, port: int) -> None:
        """Releases a reserved port, in the queue that reserves them."""
        first = self.queues[0]
        if first is self:
            self.host.release(port)
        else:
            first.post(partial(first.host.release, port))

    def abort_all(self, now: float) -> None:
        """Resets all connections."""
        for stream in list(self.table.streams.values()):
            if stream.connection is not None:
                stream.connection.abort(now)

    def drop_all(self, now: float) -> None:
        for stream in list(self.table.streams.values()):
            self.drop(stream, now)

    # -- collectives -----------------------------------------------------------------------------------------------

    def join(
        self,
        fd: int,
        rank: int,
        streams: Sequence[Sequence[Stream | None]],
        process: Sequence[Stream | None] = (),
        lanes: Sequence[tuple[StreamPump, Sequence[Sequence[Stream | None]]]] = (),
    ) -> None:
        """Hands streams to a collective engine, and those of further lanes to one of their own queue (control.Join).

        Raises OSError and ValueError.
        """
        _check_idle(chain.from_iterable([*streams, *chain.from_iterable(theirs for _, theirs in lanes)]))
        communicator = self.offloaded.join(fd, rank, streams, self.now(), process)
        others: list[tuple[LaneEngine, Post]] = []
        for number, (pump, theirs) in enumerate(lanes, 1):
            report = partial(self._post_lane_reply, communicator, number)
            others.append((pump.offloaded.join_lane(number, rank, theirs, report, self.now()), pump.post))
        if others:
            self.offloaded.add_lanes(communicator, others)

    def connect_rank(
        self,
        beside: Stream,
        rank: int,
        streams: Sequence[Stream],
        process: Stream | None,
        lanes: Sequence[tuple[StreamPump, Sequence[Stream]]],
    ) -> None:
        """Hands a communicator the streams to one more rank, and those of further lanes, whose queues stand still
        (control.ConnectRank). Raises OSError and ValueError."""
        engines = self.offloaded.lanes_beside(beside)
        if len(engines) != len(lanes):
            raise ValueError(f"the communicator has {len(engines)} further lanes")
        _check_idle(chain(streams, *(theirs for _, theirs in lanes)))
        self.offloaded.add_rank(beside, rank, streams, process, self.now())
        for engine, (pump, theirs) in zip(engines, lanes, strict=True):
            pump.offloaded.add_rank_to_lane(engine, rank, theirs)

    def start_rank(self, stream: Stream) -> None:
        """Begins the exchange with the rank of a stream (control.StartRank). Raises ValueError."""
        self.offloaded.start_rank(stream, self.now())

    def _post_lane_reply(self, communicator: OffloadedCommunicator, lane: int, reply: Reply) -> None:
        """Have this queue, whose communicator it is, learn what a further lane reports."""
        self.post(partial(self.offloaded.on_lane_reply, communicator, lane, reply))


def _check_idle(streams: Iterable[Stream | None]) -> None:
    """Raises OSError where a stream carries no bytes, or some for its process that this has not read: EINVAL; where
    the other end has ended it: ENOTCONN."""
    for stream in filter(None, streams):
        if stream.carries_bytes and not stream.input_open:
            raise OSError(errno.ENOTCONN, f"stream {stream.number} has been ended by the other side")
        if not stream.carries_bytes or stream.unread():
            raise OSError(errno.EINVAL, f"stream {stream.number} is not connected, or not idle")
