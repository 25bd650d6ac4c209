"""The pump: feeds a node what programs and the wire bring, drains it, and says when to come back. It decides nothing.

Strategy: all that moves bytes (the streams' descriptors, the wire's) hangs on the epoll instance of the
loop's own selector, which calls `turn` with what they have to say. One turn: take the programs' bytes, take in what
came, tell the programs what happened, send. Turns repeat while there is more to do; control requests come between.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict

from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.ipc import control
from softnic.nic.adaptive_codec import Stopwatch
from softnic.nic.node import Node
from softnic.packet.ethernet import mac_of
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Closed, Connection, Established, Readable, Writable
from softnic.tcp.events import EchoReply
from softnic.tcp.host import Host
from softnic.tcp.listener import AcceptReady
from softnic.tcp.liveness import PeerFound, PeerLost
from softnic.tcp.state import State
from softnicd.collectives import Groups
from softnicd.config import Config
from softnicd.control_server import ControlServer
from softnicd.event_log import EventLog
from softnicd.handlers import Requests, text_of
from softnicd.link_setup import emulated, farewell, info_of, open_wire, randomness
from softnicd.regions import Regions
from softnicd.registered import RecordError, Records
from softnicd.selector import AT_ONCE, NEVER, Selector
from softnicd.streams import Stream
from softnicd.table import StreamTable
from softnicd.watchdog import Watch

MAX_PEERS = 65536
"""As many nodes as a /16 has; a bound for what one control socket can make a NIC remember."""
RETRY_S = 0.1
"""After running out of descriptors."""

_ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

log = logging.getLogger("softnicd")


class Daemon:
    """A running NIC. Raises OSError for what cannot be opened: wire, control socket.

    Runs on `loop`, whose selector is given, from the start; `close` ends it.
    """

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, selector: Selector) -> None:
        self.config = config
        self._selector = selector
        self.event_log = EventLog()
        self._random = randomness(config.seed)
        self._wire = open_wire(config, self.event_log.record)
        link = emulated(config, self._wire, self._random)
        self.capture = CaptureHook(config.address, time.time_ns() - time.monotonic_ns())
        self.node = Node(
            config.address,
            CapturedLink(link, self.capture),
            rng=self._random,
            offloads=config.offload_table,
            mode=config.mode,
            equal_sizes=config.mode == "fill",  # costs a percent of bytes, lets the kernel take 64 frames at a time
            name=config.label,
            capture=self.capture,
            codec_timer=Stopwatch(time.perf_counter),
            link_rate_bps=None if config.emulation_spec is None else config.emulation_spec.rate_bps,
            config=TcpConfig(congestion=config.congestion, patience_s=config.peer_timeout_s),
        )
        self._poller = selector.epoll
        self.table = StreamTable(self.node, self._poller, random.SystemRandom().getrandbits(48))
        self.regions = Regions(random.SystemRandom().getrandbits(48))
        self.groups = Groups(self._poller, self.node.nic.rx_placements, self.regions, self._drop)
        self._recording: set[Stream] = set()
        """In registered mode."""
        self._pulling: set[Stream] = set()
        self._retry_at: float | None = None
        self.server = ControlServer(config.control, Requests(self).answer, self.regions.leave, self.event_log, loop)
        self._wire_descriptor = self._wire.fileno()
        self._poller.register(self._wire_descriptor, select.EPOLLIN)
        self._wire.readable = False
        selector.turn = self.turn
        self._watch = Watch(self, loop)
        self.event_log.started(config.ip, self.server.took_over)
        if config.peers:
            self.host.begin(self.now())
        self.wake()

    @property
    def host(self) -> Host:
        return self.node.host

    @property
    def info(self) -> control.NicInfo:
        unacknowledged = sum(map(self._has_unacknowledged, self.host.tcp.connections))
        return info_of(self.config, self.node.nic, self._wire, unacknowledged)

    def _has_unacknowledged(self, connection: Connection) -> bool:
        return connection.state is State.FIN_WAIT_1 or connection.info(self.now()).send_queue > 0

    def counters(self) -> dict[str, int]:
        return {
            **self.node.counters(),
            **asdict(self.server.counters),
            **asdict(self.regions.counters),
            **asdict(self.groups.counters),
            **asdict(self.event_log.counters),
        }

    def now(self) -> float:
        return time.monotonic()

    # -- the pump --------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something changed outside a turn: takes one soon."""
        self._selector.due = AT_ONCE

    def turn(self, seen: list[tuple[int, int]]) -> float:
        """Moves what can be moved, given what epoll has to say. Returns when to come back (`selector.Turn`)."""
        now = self.now()
        due: float | None
        try:
            self._look(seen)
            if self._pulling or self._retry_at is not None:
                self._pull(now)
            self.node.receive(now)
            if self.host.events or self._recording:
                self._tell(now)
            if self.groups:
                self._watch.own_stop()
                self.groups.advance(now)
            self.node.send(now)
            due = self._next_time()
            if self._pulling or self.host.events or self.groups.more:
                return AT_ONCE
        except MemoryError:
            self.event_log.exhausted("out of memory: what was going on just then is tried again")
            due = self.now() + RETRY_S
        except Exception:
            self.event_log.internal_error("internal error in a turn")
            due = self.now() + RETRY_S
        if self._retry_at is not None:
            due = self._retry_at if due is None else min(due, self._retry_at)
        return NEVER if due is None else due

    def _next_time(self) -> float | None:
        due = self.node.next_time()
        if self.groups and (at := self.groups.next_time()) is not None:
            return at if due is None else min(due, at)
        return due

    def catch_up(self) -> None:
        """Sees what programs did before a request: a port that one of them has just closed is free."""
        now = self.now()
        self._look(self._poller.poll(0))
        self._pull(now)
        self._tell(now)
        self.wake()

    def _look(self, seen: list[tuple[int, int]]) -> None:
        """Notes what epoll has to say of descriptors; those of the loop's own are passed over."""
        for descriptor, mask in seen:
            stream = self.table.by_descriptor.get(descriptor)
            if stream is None:
                if descriptor == self._wire_descriptor:
                    self._wire.readable = True
                else:
                    self.groups.look(descriptor, mask)
                continue
            if mask & _ENDS:
                stream.ending = True
                stream.hung_up = stream.hung_up or bool(mask & ~select.EPOLLRDHUP & _ENDS)
            if mask & ~select.EPOLLOUT:
                stream.readable = True
                self._pulling.add(stream)
            if mask & select.EPOLLOUT:
                if stream.listener is not None:
                    self._hand_over(stream)
                else:
                    stream.push()

    def _pull(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            for stream in list(self.table.by_listener.values()):
                self._hand_over(stream)
        for stream in list(self._pulling):
            if stream not in self._pulling:  # its group has ended since
                continue
            try:
                if not stream.pull():
                    self._pulling.discard(stream)
                if stream.group is not None:
                    if stream.hung_up:
                        self.groups.end(stream.group, now)
                        self.node.send(now)  # its last words: what comes now is for nobody, and answered by resets
                elif stream.finished:
                    self._finish(stream, now)
            except RecordError as error:
                self.refuse(stream, f"a record of this program is wrong: {error}", now)
            except Exception as error:
                self._give_up(stream, now, error)

    def _tell(self, now: float) -> None:
        """Lets the programs have what the node has for them."""
        for lender in [stream for stream in self._recording if stream.records and stream.records.lending]:
            lender.push()
        events = self.host.events
        while events:
            event = events.popleft()
            if isinstance(event, AcceptReady):
                listening = self.table.by_listener.get(event.listener)
                if listening is not None:
                    self._hand_over(listening)
            elif isinstance(event, PeerLost | PeerFound):
                self.event_log.peer_event(event)
            elif not isinstance(event, EchoReply):
                stream = self.table.by_connection.get(event.connection)
                if stream is None:
                    if isinstance(event, Closed):
                        self.table.ended(event.connection, now)
                else:
                    try:
                        self._tell_stream(stream, event, now)
                    except Exception as error:
                        self._give_up(stream, now, error)

    def _tell_stream(self, stream: Stream, event: Established | Readable | Writable | Closed, now: float) -> None:
        if stream.group is not None:
            self.groups.touch(stream.group)
        elif isinstance(event, Readable):
            stream.push()
        elif isinstance(event, Closed):
            stream.push()
            if event.errno and stream.filler and not stream.hung_up and stream.drain():
                self.table.fail(stream, now)  # its connect failed; the program may try again
            elif event.errno or not stream.output_open:
                self._drop(stream, now)
        else:
            self._pulling.add(stream)

    # -- streams ---------------------------------------------------------------------------------------------------

    def connect(self, stream: Stream, target: tuple[int, int], filler: int) -> None:
        """Raises OSError."""
        now = self.now()
        stream.filler = filler
        self.table.join(stream, self.host.connect(*target, now, stream.port))
        stream.apply(now)
        log.debug("stream %d connects to %s:%d", stream.number, text_of(target[0]), target[1])

    def listen(self, stream: Stream, backlog: int) -> None:
        """Raises OSError."""
        listener = self.host.listen(stream.address, stream.port, backlog, self.now())
        stream.listen(listener)
        self.table.by_listener[listener] = stream
        log.debug("stream %d listens at port %d", stream.number, stream.port)

    def _hand_over(self, listening: Stream) -> None:
        """Gives a program the connections it is ready to accept."""
        listener = listening.listener
        while listener is not None and listener.queue and listening.takes_record():
            try:
                if self.table.full:
                    raise OSError(errno.ENOBUFS, "too many streams")
                nic_end, program_end = socket.socketpair()
            except OSError as error:
                self.event_log.exhausted(f"cannot hand over a connection: {error.strerror}")
                self._retry_at = self.now() + RETRY_S
                return
            now = self.now()
            stream = self.table.add(nic_end.detach(), listening.settings)
            connection = listener.accept()  # behind what may want for memory: until here it waits on
            assert connection is not None
            stream.program = listening.program
            self.table.join(stream, connection)
            stream.apply(now)
            with program_end:
                try:
                    stream.mark_unaccepted()
                    listening.hand_over(stream.number, connection.peer, program_end)
                except OSError:  # the program was faster at closing its end
                    connection.abort(now)
                    self._drop(stream, now)
                    continue
            stream.push()
            self._pulling.add(stream)
            if connection.state is State.CLOSED:  # it failed while it waited: the program learns how, as elsewhere
                self._drop(stream, now)

    def _finish(self, stream: Stream, now: float) -> None:
        """The program has let go of a stream."""
        if stream.listener is not None:
            stream.listener.close(now)
        stream.leave(now)
        self._drop(stream, now)

    def _give_up(self, stream: Stream, now: float, error: Exception) -> None:
        """One stream's trouble stays its own."""
        why, number = "the NIC has no memory left for it", errno.ENOMEM
        if isinstance(error, MemoryError):
            self.event_log.exhausted(f"stream {stream.number} was ended: {why}", "streams ended for want of memory")
        else:
            self.event_log.internal_error(f"internal error in stream {stream.number}")
            why, number = "the NIC failed at it: its log says more", errno.EIO
        if stream.group is not None:
            self.groups.end(stream.group, now)
        elif stream.connection is not None:
            stream.connection.abort(now, number, why)
        if stream.number in self.table.streams:
            self._drop(stream, now)

    def use_records(self, stream: Stream) -> None:
        """Raises OSError."""
        if not stream.carries_bytes:
            raise OSError(errno.EINVAL, "only a connected stream that carries bytes can be put into registered mode")
        connection = stream.connection
        assert connection is not None
        stream.records = Records(stream, self.regions, stream.offset + stream.unread())
        self._recording.add(stream)
        self.node.nic.rx_placements[*connection.peer, connection.local[1]] = stream.records.claim

    def join(self, descriptor: int, rank: int, words: Sequence[Stream | None], data: Sequence[Stream | None]) -> None:
        """Makes a group of streams (control.Join). Raises OSError and ValueError."""
        for stream in (*words, *data):
            if stream is not None and (not stream.carries_bytes or not stream.input_open or stream.unread()):
                raise OSError(errno.EINVAL, f"stream {stream.number} is not connected, or not at rest")
        self.groups.join(descriptor, rank, words, data)

    def add_peer(self, ip: int, address: tuple[str, int]) -> None:
        """Raises OSError."""
        if ip == self.host.ip:
            raise OSError(errno.EINVAL, f"{text_of(ip)} is this NIC's own address")
        if self._wire.peer_count >= MAX_PEERS:
            raise OSError(errno.ENOBUFS, f"the NIC has {MAX_PEERS} peers already")
        self._wire.add_peer(mac_of(ip), address)

    def withdraw(self, stream: Stream) -> None:
        """Raises OSError."""
        if stream.records is None:
            raise OSError(errno.EINVAL, "the stream is not in registered mode")
        if stream.records.withdraw():
            self.refuse(stream, "its program took back memory that was still to be sent", self.now(), errno.ECANCELED)

    def refuse(self, stream: Stream, why: str, now: float, error: int = errno.EINVAL) -> None:
        """Ends a stream because of what its program did."""
        log.debug("stream %d: %s", stream.number, why)
        if error == errno.EINVAL:
            self.regions.counters.records_malformed += 1
        if stream.connection is not None:
            stream.connection.abort(now, error, why)
        self._drop(stream, now)

    def _drop(self, stream: Stream, now: float) -> None:
        self._pulling.discard(stream)
        if stream in self._recording and stream.connection is not None:
            self._recording.remove(stream)
            del self.node.nic.rx_placements[*stream.connection.peer, stream.connection.local[1]]
        if stream.port:
            self.host.release(stream.port)
        self.table.drop(stream, now)
        log.debug("stream %d is over", stream.number)

    def close(self) -> None:
        """Resets all connections and ends."""
        now = self.now()
        self._watch.close()
        self.server.close()
        self._selector.turn, self._selector.due = None, NEVER
        self.groups.stop(now)
        self.node.send(now)
        for stream in list(self.table.streams.values()):
            if stream.connection is not None:
                stream.connection.abort(now)
        self.node.advance(now)
        for stream in list(self.table.streams.values()):
            self._drop(stream, now)
        farewell(self.node.link)
        self.node.link.close()
