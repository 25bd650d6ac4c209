"""Stream table: all streams of a NIC by number, file descriptor and connection, and the last state of closed ones."""

from __future__ import annotations

import heapq
import math
import select
import socket
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import msgspec

from softnic import codecs
from softnic.ipc.control import MAX_SENT_CODECS, AutoInfo, StreamInfo
from softnic.nic.flows import NicFlow, agreed
from softnic.nic.node import Node
from softnic.packet import ipv4
from softnic.tcp.connection import Connection
from softnic.tcp.listener import Listener
from softnic.tcp.state import State
from softnicd.inherited import Identity
from softnicd.link_setup import codec_numbers
from softnicd.streams import Settings, Stream

MAX_STREAMS = 16384
"""Each may have some megabytes of buffers."""
REMEMBERED = 1024
"""Closed streams whose last state an application may still ask for."""
_OVER = (State.CLOSED, State.TIME_WAIT)


@dataclass(slots=True)
class _Closed:
    """A stream without a file descriptor. Its connection may live on until all bytes have reached the peer."""

    stream: Stream
    final: StreamInfo | None = None
    """Its last state, once the connection is over."""


class Ports(Protocol):
    """The ports of a turn."""

    def add(self, stream: Stream) -> None:
        """A stream has a connection."""

    def remove(self, stream: Stream) -> None:
        """A stream is about to lose its connection, if it has one."""


class StreamTable:
    """All streams of a queue. `numbers` has those of further ones."""

    def __init__(self, node: Node, poller: select.epoll, numbers: Iterator[int]) -> None:
        self._node = node
        self._poller = poller
        self.numbers = numbers
        self._closed: OrderedDict[int, _Closed] = OrderedDict()
        self._lingering: dict[Connection, _Closed] = {}
        """Those of them whose connection lives on."""
        self.streams: dict[int, Stream] = {}
        self.by_fd: dict[int, Stream] = {}
        self.by_connection: dict[Connection, Stream] = {}
        self.by_listener: dict[Listener, Stream] = {}
        """The listening streams, those of other queues too, by the listener here."""
        self.listeners: dict[Stream, Listener] = {}
        self.ports: Ports | None = None
        self.queue = 0
        """Number of the queue."""

    @property
    def full(self) -> bool:
        return len(self.streams) >= MAX_STREAMS

    def get(self, number: int) -> Stream | None:
        return self.streams.get(number)

    def knows(self, number: int) -> bool:
        """Whether it has this stream, or remembers it."""
        return number in self.streams or number in self._closed

    def add(self, fd: int, settings: Settings | None = None) -> Stream:
        """Adds a stream, which owns the file descriptor from now on."""
        stream = Stream(next(self.numbers), socket.socket(fileno=fd), self._poller, settings or Settings())
        self.streams[stream.number] = self.by_fd[fd] = stream
        return stream

    def move(self, stream: Stream, other: StreamTable) -> None:
        """Makes a stream without connection and listener one of another queue."""
        fd = stream.socket.fileno()
        self._poller.unregister(fd)
        del self.streams[stream.number]
        del self.by_fd[fd]
        other.streams[stream.number] = other.by_fd[fd] = stream
        stream.watch(other._poller)

    def add_listener(self, stream: Stream, listener: Listener) -> None:
        """Notes the listener here of a stream of this queue or another one."""
        self.by_listener[listener] = stream
        self.listeners[stream] = listener

    def remove_listener(self, stream: Stream) -> Listener | None:
        """Forgets the listener of a stream, which is returned if there was one."""
        listener = self.listeners.pop(stream, None)
        if listener is not None:
            del self.by_listener[listener]
        return listener

    def attach(self, stream: Stream, connection: Connection) -> None:
        """Sets the connection of a stream."""
        stream.connection, stream.failure = connection, None
        self.by_connection[connection] = stream
        if self.ports is not None:
            self.ports.add(stream)

    def fail_connect(self, stream: Stream, now: float) -> None:
        """Detaches a connection that failed to open. The stream keeps the error until it is read."""
        stream.failure = msgspec.structs.replace(self.info(stream, now), state=State.CLOSED.value)
        if stream.connection is not None:
            self.detach(stream)
            del self.by_connection[stream.connection]
            stream.connection = None

    def forget(self, stream: Stream) -> None:
        """Removes a stream that could not be opened; its file descriptor stays open, and is the caller's."""
        self._remove(stream)
        self._poller.unregister(stream.socket.fileno())
        stream.socket.detach()

    def withdraw(self, stream: Stream) -> None:
        """Closes a stream that was never accepted. Its connection stays."""
        self._remove(stream)
        stream.close()

    def drop(self, stream: Stream, now: float) -> None:
        """Closes a stream that is over, and remembers its state."""
        closed = self._closed[stream.number] = _Closed(stream)
        self._remove(stream)
        stream.close()
        connection = stream.connection
        if connection is not None and stream.hung_up and connection.state not in _OVER:
            self._lingering[connection] = closed
        else:
            self._settle(closed, now)
        if len(self._closed) > REMEMBERED:
            _, oldest = self._closed.popitem(last=False)
            if oldest.stream.connection is not None:
                self._lingering.pop(oldest.stream.connection, None)

    def connection_closed(self, connection: Connection, now: float) -> None:
        """Records the last state of a stream that was closed before its connection."""
        closed = self._lingering.pop(connection, None)
        if closed is not None:
            self._settle(closed, now)

    def _settle(self, closed: _Closed, now: float) -> None:
        """Records the last state: CLOSED, also in TIME-WAIT, which belongs to TCP as in the kernel's TCP_INFO."""
        closed.final = msgspec.structs.replace(self.info(closed.stream, now), state=State.CLOSED.value)
        closed.stream.connection = None  # frees its buffers

    def detach(self, stream: Stream) -> None:
        """Has Python alone move the bytes of a stream."""
        if self.ports is not None:
            self.ports.remove(stream)

    def _remove(self, stream: Stream) -> None:
        self.detach(stream)
        del self.streams[stream.number]
        del self.by_fd[stream.socket.fileno()]
        if stream.connection is not None:
            self.by_connection.pop(stream.connection, None)
        self.remove_listener(stream)

    def status(self, number: int, now: float, clear: bool) -> StreamInfo | None:
        """The state of a stream, closed ones included. `clear` removes the pending error: it is reported once."""
        stream = self.streams.get(number)
        if stream is not None:
            info = self.info(stream, now)
            if clear and stream.failure is not None:
                stream.failure = msgspec.structs.replace(stream.failure, error=0, error_message="")
            return info
        closed = self._closed.get(number)
        if closed is None:
            return None
        info = closed.final or self.info(closed.stream, now)
        if clear and closed.final is not None and closed.final.error:
            closed.final = msgspec.structs.replace(closed.final, error=0, error_message="")
        return info

    def settings(self, number: int) -> Settings | None:
        """The options of a stream, closed ones included."""
        stream = self.streams.get(number)
        if stream is not None:
            return stream.settings
        closed = self._closed.get(number)
        return None if closed is None else closed.stream.settings

    def identity(self, number: int) -> Identity | None:
        """The identity of the application's end of a stream, closed ones included."""
        stream = self.streams.get(number)
        if stream is None and number in self._closed:
            stream = self._closed[number].stream
        return None if stream is None else stream.identity

    def loopback_of(self, connection: Connection) -> tuple[int, int] | None:
        """The addresses of an accepted connection, if the stream that opened it used a loopback address."""
        (ip, port), (_, peer_port) = connection.local, connection.peer
        opener = self._node.host.tcp.lookup((ip, port, peer_port)) if connection.peer[0] == ip else None
        if opener is None:
            return None
        stream = self.by_connection.get(opener)
        if stream is None and opener in self._lingering:
            stream = self._lingering[opener].stream
        return None if stream is None or stream.loopback is None else (stream.loopback[1], stream.loopback[0])

    def page(self, after: int, limit: int, now: float) -> list[StreamInfo]:
        """The states of at most `limit` open streams with numbers above `after`, in order."""
        numbers = heapq.nsmallest(limit, (number for number in self.streams if number > after))
        return [self.info(self.streams[number], now) for number in numbers]

    def info(self, stream: Stream, now: float) -> StreamInfo:
        connection = stream.connection
        if stream.failure is not None:
            return stream.failure
        if connection is None:
            state = "LISTEN" if stream.listens else "BOUND"
            local = (ipv4.text(stream.ip), stream.port)
            return StreamInfo(stream.number, state, local, tos=stream.settings.tos, codec=self._codec(stream))
        tcp, unread = connection.info(now), stream.unread()
        flow: NicFlow | None = connection.nic
        peer_codecs = agreed(connection, self._node.nic.codecs)
        return StreamInfo(
            stream.number,
            tcp.state,
            *_names(stream, connection),
            tcp.error,
            tcp.error_message,
            stream.settings.tos,
            self._codec(stream),
            codec_numbers(peer_codecs),
            tcp.bytes_sent,
            tcp.bytes_received,
            tcp.wire_bytes_sent,
            0 if flow is None else flow.wire_bytes_received,
            0 if flow is None else flow.offload_original_bytes_sent,
            0 if flow is None else flow.offload_encoded_bytes_sent,
            tcp.send_queue + unread,
            tcp.receive_queue,
            tcp.retransmits,
            tcp.srtt,
            tcp.rttvar,
            tcp.rto,
            tcp.cwnd,
            tcp.mss,
            _auto(self._codec(stream), peer_codecs, flow) if connection.rcv.rcv_nxt else None,
            tcp.congestion,
            closed=stream.is_closed(),
            sent_codecs=self._sent_codecs(connection),
            notsent=tcp.notsent + unread,
            queue=self.queue,
            min_rtt=tcp.min_rtt,
        )

    def _codec(self, stream: Stream) -> str:
        offloads = self._node.nic.offloads
        tos = stream.settings.tos
        return (stream.settings.codec or offloads.codecs[tos & 0xFC]) if offloads.selects(tos) else ""

    def _sent_codecs(self, connection: Connection) -> list[str]:
        offloads = self._node.nic.offloads
        tags = (tag for tag in connection.snd.buffer.tags if offloads.selects(tag.tos))
        found = dict.fromkeys(tag.codec or offloads.codecs[tag.tos & 0xFC] for tag in tags)
        return list(islice(found, MAX_SENT_CODECS))


def _names(stream: Stream, connection: Connection) -> tuple[tuple[str, int], tuple[str, int]]:
    """The addresses and ports of both ends, with the addresses that the application used."""
    local, peer = stream.loopback or (connection.local[0], connection.peer[0])
    return (ipv4.text(local), connection.local[1]), (ipv4.text(peer), connection.peer[1])


def _auto(codec: str, peer_codecs: int | None, flow: NicFlow | None) -> AutoInfo | None:
    """What codec = "auto" decided for a stream; None for other codecs and before a decision."""
    chosen = codecs.get(codec) if codec else None
    if chosen is None or not chosen.auto or flow is None:
        return None
    if peer_codecs is None:
        return AutoInfo(True, "auto: not compressed, the peer has no softnic NIC")
    if not peer_codecs >> chosen.number & 1:
        return AutoInfo(True, f"auto: not compressed, the peer's NIC has no codec {chosen.name}")
    if flow.adaptive is None:
        return None
    auto, on, off = flow.adaptive, flow.adaptive.compressed, flow.adaptive.uncompressed
    current = off if auto.raw else on
    return AutoInfo(
        auto.raw,
        auto.describe(),
        auto.trying,
        ratio=None if on is None else on.ratio,
        codec=None if on is None or math.isinf(on.codec) else on.codec,
        compressed=None if on is None else on.goodput,
        uncompressed=None if off is None else off.goodput,
        wire=None if current is None else current.wire,
    )
