"""All streams of a NIC, by number, descriptor and connection, and what is still worth knowing of those gone."""

from __future__ import annotations

import ipaddress
import math
import select
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from softnic import codecs
from softnic.ipc.control import AutoInfo, StreamInfo
from softnic.nic.flows import Flow
from softnic.tcp.connection import Connection
from softnic.tcp.listener import Listener
from softnic.tcp.state import State
from softnicd.streams import Settings, Stream

if TYPE_CHECKING:
    from softnic.nic.node import Node

MAX_STREAMS = 16384
"""At one time: each may hold some megabytes of buffers."""
REMEMBERED = 1024
"""Streams gone whose end a program may still ask for."""
_OVER = (State.CLOSED, State.TIME_WAIT)


@dataclass(slots=True)
class _Gone:
    """A stream without a descriptor. If its program let go of it, its connection may live on: for what is still to
    reach the peer."""

    stream: Stream
    flow: Flow | None
    """Kept, since another connection may get its addresses and ports."""
    final: StreamInfo | None = None
    """How it was in the end."""


class StreamTable:
    """Numbers begin anywhere (`first`), so that a stream of an earlier NIC is not taken for one of this."""

    def __init__(self, node: Node, poller: select.epoll, first: int) -> None:
        self._node = node
        self._poller = poller
        self._last = first
        self._gone: OrderedDict[int, _Gone] = OrderedDict()
        self._leaving: dict[Connection, _Gone] = {}
        """Of them, those whose connection lives on."""
        self.streams: dict[int, Stream] = {}
        self.by_descriptor: dict[int, Stream] = {}
        self.by_connection: dict[Connection, Stream] = {}
        self.by_listener: dict[Listener, Stream] = {}

    @property
    def full(self) -> bool:
        return len(self.streams) >= MAX_STREAMS

    def get(self, number: int) -> Stream | None:
        return self.streams.get(number)

    def add(self, descriptor: int, settings: Settings | None = None) -> Stream:
        """A new stream on this descriptor, which is the stream's from now on."""
        self._last += 1
        stream = Stream(self._last, socket.socket(fileno=descriptor), self._poller, settings or Settings())
        self.streams[stream.number] = self.by_descriptor[descriptor] = stream
        return stream

    def join(self, stream: Stream, connection: Connection) -> None:
        """The stream is this connection from now on."""
        stream.connection, stream.failure = connection, None
        self.by_connection[connection] = stream

    def fail(self, stream: Stream, now: float) -> None:
        """Its connect failed: the stream has no connection any more, and keeps the error until it is asked for."""
        stream.failure = msgspec.structs.replace(self.info(stream, now), state=State.CLOSED.value)
        if stream.connection is not None:
            del self.by_connection[stream.connection]
            stream.connection = None

    def forget(self, stream: Stream) -> None:
        """Takes a stream back that came to nothing; its descriptor stays open, and the caller's."""
        self._remove(stream)
        self._poller.unregister(stream.socket.fileno())
        stream.socket.detach()

    def drop(self, stream: Stream, now: float) -> None:
        """A stream is over: closes its descriptor, and remembers it."""
        gone = self._gone[stream.number] = _Gone(stream, self._flow(stream))
        self._remove(stream)
        stream.close()
        connection = stream.connection
        if connection is not None and stream.hung_up and connection.state not in _OVER:
            self._leaving[connection] = gone
        else:
            self._settle(gone, now)
        if len(self._gone) > REMEMBERED:
            _, oldest = self._gone.popitem(last=False)
            if oldest.stream.connection is not None:
                self._leaving.pop(oldest.stream.connection, None)

    def ended(self, connection: Connection, now: float) -> None:
        """A connection is over. If its stream has gone before, it stays as it was now."""
        gone = self._leaving.pop(connection, None)
        if gone is not None:
            self._settle(gone, now)

    def _settle(self, gone: _Gone, now: float) -> None:
        """TIME-WAIT, too, is TCP's own business, as the kernel's TCP_INFO has it."""
        gone.final = msgspec.structs.replace(self._info(gone.stream, gone.flow, now), state=State.CLOSED.value)
        gone.stream.connection = None  # and all of its memory

    def _remove(self, stream: Stream) -> None:
        del self.streams[stream.number]
        del self.by_descriptor[stream.socket.fileno()]
        if stream.connection is not None:
            self.by_connection.pop(stream.connection, None)
        if stream.listener is not None:
            self.by_listener.pop(stream.listener, None)

    def status(self, number: int, now: float, clear: bool) -> StreamInfo | None:
        """State of a stream, one that is gone too. `clear` forgets the error of one that is gone, or whose connect
        failed: it is reported once."""
        stream = self.streams.get(number)
        if stream is not None:
            info = self.info(stream, now)
            if clear and stream.failure is not None:
                stream.failure = msgspec.structs.replace(stream.failure, error=0, error_message="")
            return info
        gone = self._gone.get(number)
        if gone is None:
            return None
        info = gone.final or self._info(gone.stream, gone.flow, now)
        if clear and gone.final is not None and gone.final.error:
            gone.final = msgspec.structs.replace(gone.final, error=0, error_message="")
        return info

    def info(self, stream: Stream, now: float) -> StreamInfo:
        return self._info(stream, self._flow(stream), now)

    def _flow(self, stream: Stream) -> Flow | None:
        connection = stream.connection
        return None if connection is None else self._node.nic.flows.get((*connection.peer, connection.local[1]))

    def _info(self, stream: Stream, flow: Flow | None, now: float) -> StreamInfo:
        connection = stream.connection
        if stream.failure is not None:
            return stream.failure
        if connection is None:
            state = "BOUND" if stream.listener is None else "LISTEN"
            local = (str(ipaddress.IPv4Address(stream.address)), stream.port)
            return StreamInfo(stream.number, state, local, tos=stream.settings.tos, codec=self._codec(stream))
        tcp = connection.info(now)
        return StreamInfo(
            stream.number,
            tcp.state,
            _named(connection.local),
            _named(connection.peer),
            tcp.error,
            tcp.error_message,
            stream.settings.tos,
            self._codec(stream),
            _numbers(flow.codecs) if flow is not None and flow.settled else None,
            tcp.bytes_sent,
            tcp.bytes_received,
            tcp.wire_bytes_sent,
            0 if flow is None else flow.wire_bytes_received,
            0 if flow is None else flow.offload_original_bytes_sent,
            0 if flow is None else flow.offload_encoded_bytes_sent,
            tcp.send_queue,
            tcp.receive_queue,
            tcp.retransmits,
            tcp.srtt,
            tcp.rttvar,
            tcp.rto,
            tcp.cwnd,
            tcp.mss,
            _auto(self._codec(stream), flow),
            tcp.congestion,
        )

    def _codec(self, stream: Stream) -> str:
        offloads = self._node.nic.offloads
        tos = stream.settings.tos
        return (stream.settings.codec or offloads.codecs[tos & 0xFC]) if offloads.selects(tos) else ""


def _named(address: tuple[int, int]) -> tuple[str, int]:
    return str(ipaddress.IPv4Address(address[0])), address[1]


def _numbers(bitmap: int | None) -> list[int] | None:
    return None if bitmap is None else [number for number in range(16) if bitmap >> number & 1]


def _auto(codec: str, flow: Flow | None) -> AutoInfo | None:
    """What `codec`, the stream's, came to where it is one that the NIC may leave out."""
    chosen = codecs.get(codec) if codec else None
    if chosen is None or not chosen.auto or flow is None or not flow.settled:
        return None
    if flow.codecs is None:
        return AutoInfo(True, "auto: bytes as they are, for the peer has no such NIC")
    if not flow.codecs >> chosen.number & 1:
        return AutoInfo(True, f"auto: floats as they are, for the peer's NIC has no {chosen.name}")
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
