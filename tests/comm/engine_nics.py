"""NICs for ranks that are threads of this process: real collective engines, over kernel sockets, in one more thread."""

from __future__ import annotations

import itertools
import mmap
import os
import select
import socket as stdlib
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from softnic import codecs
from softnic._native import lib
from softnic.collectives import CollectiveEngine, nbytes
from softnic.collectives.elements import raw
from softnic.comm import messages
from softnic.comm.transport import NicConnection, Transport
from softnic.ipc import work_queue
from softnic.ipc.regions import Region
from softnic.ipc.work_queue import CancelRequest, LeaveRequest, StagedPart, WorkRequest
from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.peer_stream import COMPRESSED_TOS
from softnic.tcp.send_buffer import CUT
from tests.tcp.flows import FlowMemory

TABLE = "bounded:10"
"""The codec of the NICs' offload tables."""
BUFFER = 1 << 20

MODULE = SimpleNamespace(socket=stdlib.socket, info=lambda _: SimpleNamespace(codec=TABLE))
"""Kernel sockets, with what a communicator asks of softnic.socket besides."""


class SocketStream:
    """A kernel socket as the stream to another rank. Compressed floats are sent as decode(encode(x))."""

    rounded_bytes = 0
    """Of all streams, since the counter was last set to 0."""

    def __init__(self, connection: stdlib.socket) -> None:
        self._connection = connection
        self._socket = connection.dup()
        self._socket.setblocking(False)
        self._numbers = FlowMemory(BUFFER)
        self._buffer = self._numbers.send_buffer
        self.flow, self.received = self._numbers.c, self._numbers.received
        self._out = bytearray()
        self._ending = False
        self.is_failed = self.is_ended = False
        self.end_reason = "it closed its connection"

    @property
    def unread(self) -> int:
        return self._numbers.receive.unread

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """What to poll for."""
        reading = select.POLLIN if not self.is_ended and self.unread < BUFFER else 0
        return reading | select.POLLOUT if self._out else reading

    def is_over(self, connection: stdlib.socket) -> bool:
        """Whether it is the stream over a connection."""
        return self._connection is connection

    def fill(self) -> None:
        """Receive what has arrived."""
        while not self.is_ended and self.unread < BUFFER:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                self.end_reason, self.is_failed, data = str(error), True, b""
            self.is_ended = not data
            if data:
                self.arrive(data)

    def arrive(self, data: bytes) -> None:
        """Have received bytes."""
        self._numbers.keep(memoryview(data))

    def flush(self) -> bool:
        """Send what the socket takes; return whether it took anything."""
        self.wake()
        before = len(self._out)
        with suppress(BlockingIOError):
            while self._out:
                try:
                    del self._out[: self._socket.send(self._out)]
                except (BrokenPipeError, ConnectionResetError):
                    self._out.clear()
        if self._ending and not self._out:
            with suppress(OSError):
                self._socket.shutdown(stdlib.SHUT_WR)
        return len(self._out) < before

    @staticmethod
    def watch(control: Sequence[Any], others: Sequence[Any]) -> Callable[[], tuple[bool, bool]]:
        return lambda: (
            any(stream.unread for stream in control),
            not all(stream.is_open for stream in (*control, *others)),
        )

    def send(self, data: bytes | memoryview) -> int:
        taken = bytes(data[: max(0, BUFFER - len(self._out))])
        self._out += taken
        return len(taken)

    def send_blocks(self) -> None:
        self._buffer.set_blocks(True)

    def tag_of(self, codec: str | None) -> tuple[int, int, bool, int]:
        tag = PLAIN if codec is None else Tag(COMPRESSED_TOS, codec)
        block = codecs.get(codec).block_bytes if codec else CUT
        return self._buffer.number_of(tag), tag.tos, codec is not None, block

    def attach(self, steps: Any, headers: Any) -> None:
        self._readers = steps, headers
        lib.sn_flow_attach(self.flow, steps, headers)

    def consumed(self, count: int) -> None:
        self._numbers.receive.unread -= count

    def reserve(self) -> None:
        self._buffer.write_space()

    def wake(self) -> None:
        """Take from the send buffer what there is space for."""
        buffer, send = self._buffer, self._numbers.send
        while len(self._out) < BUFFER and send.snd_nxt < buffer.end:
            tag_range, end, _ = buffer.extent(send.snd_nxt, False)
            if end == send.snd_nxt:
                break
            data = bytes(buffer.view(send.snd_nxt, end))
            if tag_range.words:
                assert tag_range.tag.codec is not None
                data = raw(codecs.get(tag_range.tag.codec).roundtrip(np.frombuffer(data, np.float32))).tobytes()
                SocketStream.rounded_bytes += len(data)
            self._out += data
            send.snd_nxt = end
        buffer.release(send.snd_nxt)

    @property
    def unsent(self) -> int:
        return len(self._out) + self._buffer.end - self._numbers.send.snd_nxt

    @property
    def is_open(self) -> bool:
        return not self.is_ended and not self._ending

    def shutdown_write(self) -> None:
        self._ending = True

    def close(self, now: float) -> None:  # noqa: ARG002
        self._ending = True

    def abort(self, now: float) -> None:  # noqa: ARG002
        self._out.clear()
        self._ending = self.is_ended = self.is_failed = True
        self._socket.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def release(self) -> None:
        """Close the socket, whatever is unsent."""
        self._socket.close()


class EngineEnd:
    """The NIC's side of one rank's communicator."""

    def __init__(
        self, place: tuple[int, int], end: stdlib.socket, channels: Sequence[Mapping[int, stdlib.socket]]
    ) -> None:
        self.rank, size = place
        self.end = end
        self.streams = [{other: SocketStream(connection) for other, connection in each.items()} for each in channels]
        control, data, plain, compressed = self.streams
        pairs = {other: (plain[other], compressed[other]) for other in plain}
        self.engine = CollectiveEngine(self.rank, size, control, data, pairs)
        self.left = False
        self.has_said_so = False
        """The process has said that it leaves."""
        self._awaited: dict[stdlib.socket, tuple[int, list[SocketStream]]] = {}

    def add(self, rank: int, connections: Sequence[stdlib.socket]) -> None:
        """Take the connections to one more rank."""
        streams = [SocketStream(connection) for connection in connections]
        for by_rank, stream in zip(self.streams, streams, strict=True):
            by_rank[rank] = stream
        self._awaited[connections[0]] = rank, streams

    def start(self, first: stdlib.socket) -> bool:
        """Use the connections to the rank whose first one this is; return whether it is one."""
        if first not in self._awaited:
            return False
        rank, (control, data, plain, compressed) = self._awaited.pop(first)
        self.engine.connect(time.monotonic(), rank, control, data, (plain, compressed))
        return True

    @property
    def all_streams(self) -> list[SocketStream]:
        return [stream for each in self.streams for stream in each.values() if stream.fd >= 0]

    @property
    def is_over(self) -> bool:
        """Whether the process has closed its end, and everything was sent."""
        return self.left and not any(stream.unsent for stream in self.all_streams)


class EngineNics(Transport):
    """The NICs of all ranks."""

    def __init__(self, module: Any = MODULE) -> None:
        super().__init__(module)
        self._joined: list[EngineEnd] = []
        self._regions: dict[int, mmap.mmap] = {}
        self._known: WeakKeyDictionary[Region, int] = WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self.lock = threading.RLock()
        self._closed = False
        self.wake = os.eventfd(0)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        os.eventfd_write(self.wake, 1)
        self._thread.join()
        os.close(self.wake)

    def join(
        self,
        place: tuple[int, int],
        channels: Sequence[Mapping[int, stdlib.socket]],
        _process: object = None,
        _lanes: object = (),
    ) -> NicConnection:
        ours, theirs = stdlib.socketpair(stdlib.AF_UNIX, stdlib.SOCK_SEQPACKET)
        ours.setblocking(False)
        with self.lock:
            self._joined.append(EngineEnd(place, theirs, channels))
            self.on_join(self._joined[-1])
        os.eventfd_write(self.wake, 1)
        return NicConnection(ours, self._number)

    def connect_rank(self, beside: stdlib.socket, rank: int, connections: Sequence[stdlib.socket]) -> None:
        kinds = (messages.ENGINE_CONTROL, messages.DATA, messages.PLAIN, messages.TAGGED)
        with self.lock:
            [end] = [end for end in self._joined if any(stream.is_over(beside) for stream in end.streams[0].values())]
            end.add(rank, [connections[kind] for kind in kinds])
        os.eventfd_write(self.wake, 1)

    def start_rank(self, first: stdlib.socket) -> None:
        with self.lock:
            assert any([end.start(first) for end in self._joined])
        os.eventfd_write(self.wake, 1)

    def on_join(self, end: EngineEnd) -> None:
        """For subclasses: a rank has joined."""

    def _number(self, region: Region) -> int:
        with self.lock:
            if region not in self._known:
                self._known[region] = number = next(self._numbers)
                self._regions[number] = mmap.mmap(region.fd, region.size)
            return self._known[region]

    def memory(self, address: tuple[int, int], size: int) -> memoryview:
        """Return registered memory."""
        region = memoryview(self._regions[address[0]])
        assert address[1] + size <= len(region)
        return region[address[1] : address[1] + size]

    def is_read(self, end: EngineEnd) -> bool:  # noqa: ARG002
        """For subclasses: whether requests of a rank are read now."""
        return True

    def _serve(self) -> None:
        while not self._closed:
            poll = select.poll()
            poll.register(self.wake, select.POLLIN)
            with self.lock:
                for end in self._joined:
                    if not end.left and self.is_read(end):
                        poll.register(end.end, select.POLLIN)
                    for stream in end.all_streams:
                        if stream.events:
                            poll.register(stream.fd, stream.events)
                times = [end.engine.next_time() for end in self._joined]
            until = min((time for time in times if time is not None), default=None)
            poll.poll(None if until is None else max(0, until - time.monotonic()) * 1000 + 1)
            with suppress(BlockingIOError):
                os.set_blocking(self.wake, False)
                os.eventfd_read(self.wake)
            with self.lock:
                for end in list(self._joined):
                    self._advance(end)
        with self.lock:
            for end in self._joined:
                self._release(end)

    def _advance(self, end: EngineEnd) -> None:
        for stream in end.all_streams:
            stream.fill()
        if not end.left and self.is_read(end):
            self._read(end)
        flushed = True
        while flushed:  # there is space for more to be sent then
            end.engine.advance(time.monotonic())
            flushed = any([stream.flush() for stream in end.all_streams])
        while end.engine.replies and not end.left:
            with suppress(OSError):
                end.end.send(work_queue.encode(end.engine.replies[0]))
            end.engine.replies.popleft()
        if end.is_over:
            self._release(end)
            self._joined.remove(end)

    def _release(self, end: EngineEnd) -> None:
        end.end.close()
        for stream in end.all_streams:
            stream.release()

    def _read(self, end: EngineEnd) -> None:
        while True:
            try:
                packet = end.end.recv(work_queue.MAX_PACKET, stdlib.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                end.left = True
                end.engine.leave(time.monotonic(), has_said_so=end.has_said_so)
                self.on_leave(end)
                end.end.close()
                return
            self.on_request(end, work_queue.decode_from_process(packet))

    def on_leave(self, end: EngineEnd) -> None:
        """For subclasses: a rank has closed its work queue."""

    def on_request(self, end: EngineEnd, request: work_queue.FromProcess) -> None:
        """Execute a request."""
        if isinstance(request, LeaveRequest):
            end.has_said_so = True
        elif isinstance(request, CancelRequest) and not request.number:
            end.engine.give_up(request, "the communicator", time.monotonic())
        elif isinstance(request, CancelRequest):
            end.engine.cancel(request, time.monotonic())
        elif isinstance(request, WorkRequest):
            size = nbytes(request)
            end.engine.post(request, self.memory(request.source, size), self.memory(request.result, size))
        elif isinstance(request, StagedPart):
            end.engine.stage(request)
        else:
            end.engine.post_message(request, self.memory(request.memory, request.size))
