"""All streams of a NIC, by number, descriptor and connection, and what is still worth knowing of those gone."""

from __future__ import annotations

import ipaddress
import math
import select
import socket
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from softnic import codecs
from softnic.control import AutoInfo, StreamInfo
from softnic.nic.flows import Flow
from softnic.stack.tcp.connection import Connection
from softnic.stack.tcp.listener import Listener
from softnicd.streams import Settings, Stream

if TYPE_CHECKING:
    from softnic.nic.node import Node

MAX_STREAMS = 16384
"""At one time: each may hold some megabytes of buffers."""
REMEMBERED = 1024
"""Streams gone whose end a program may still ask for."""


class StreamTable:
    """Numbers begin anywhere (`first`), so that a stream of an earlier NIC is not taken for one of this."""

    def __init__(self, node: Node, poller: select.epoll, first: int) -> None:
        self._node = node
        self._poller = poller
        self._last = first
        self._gone: OrderedDict[int, StreamInfo] = OrderedDict()
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
        stream.connection = connection
        self.by_connection[connection] = stream

    def forget(self, stream: Stream) -> None:
        """Takes a stream back that came to nothing; its descriptor stays open, and the caller's."""
        self._remove(stream)
        self._poller.unregister(stream.socket.fileno())
        stream.socket.detach()

    def drop(self, stream: Stream, now: float) -> None:
        """A stream is over: closes its descriptor, remembers how it ended."""
        self._gone[stream.number] = self.info(stream, now)
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        self._remove(stream)
        stream.close()

    def _remove(self, stream: Stream) -> None:
        del self.streams[stream.number]
        del self.by_descriptor[stream.socket.fileno()]
        if stream.connection is not None:
            self.by_connection.pop(stream.connection, None)
        if stream.listener is not None:
            self.by_listener.pop(stream.listener, None)

    def status(self, number: int, now: float, clear: bool) -> StreamInfo | None:
        """State of a stream, one that is gone too. `clear` forgets the error of one that is gone: it is told once."""
        stream = self.streams.get(number)
        if stream is not None:
            return self.info(stream, now)
        info = self._gone.get(number)
        if info is not None and clear and info.error:
            self._gone[number] = _without_error(info)
        return info

    def info(self, stream: Stream, now: float) -> StreamInfo:
        connection = stream.connection
        if connection is None:
            state = "BOUND" if stream.listener is None else "LISTEN"
            local = (str(ipaddress.IPv4Address(stream.address)), stream.port)
            return StreamInfo(stream.number, state, local, tos=stream.settings.tos, codec=self._codec(stream))
        flow = self._node.nic.flows.get((*connection.peer, connection.local[1]))
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
    if flow.auto is None:
        return None
    auto, on, off = flow.auto, flow.auto.compressed, flow.auto.uncompressed
    current = off if auto.raw else on
    return AutoInfo(
        auto.raw,
        auto.why(),
        auto.trying,
        ratio=None if on is None else on.ratio,
        codec=None if on is None or math.isinf(on.codec) else on.codec,
        compressed=None if on is None else on.goodput,
        uncompressed=None if off is None else off.goodput,
        wire=None if current is None else current.wire,
    )


def _without_error(info: StreamInfo) -> StreamInfo:
    return msgspec.structs.replace(info, error=0, error_message="")
