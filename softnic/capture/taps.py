"""What a running node's captures are fed from: a tap around its link, and one between its TCP and its NIC.

Strategy: both taps of a node share one CapturePoint, which holds the captures that are going on. Without any, a tap
costs one look at an empty list per batch. Each capture has a sink: a stream socket whose other end some
`softnic capture` reads, and a queue with a limit before it. Blocks that find no room are dropped, whole batches of
them, and counted; nothing ever waits for a reader. The reader ends a capture by shutting down its way in (the sink
then sends what is queued, the statistics, and closes) or by closing its end altogether (what is queued is lost).

The link tap does the sinks' chores from `advance`, and asks to be called for that while a capture goes on, so a
daemon needs no handler of its own for them.
"""

from __future__ import annotations

import errno
import socket
from collections import deque

from softnic.capture import pcapng
from softnic.capture.frames import host_frames
from softnic.capture.pcapng import Direction
from softnic.link.base import Link
from softnic.packet.frames import Frames
from softnic.packet.segment import Segment, Transmitted

QUEUE_BYTES = 32 << 20
"""Of blocks that one capture's reader may be behind."""
MAX_CAPTURES = 8
"""Of one node at a time."""
_PIECES = 64
_AT_ONCE = socket.MSG_DONTWAIT
"""Beside O_NONBLOCK, which a program that keeps a copy of the descriptor can clear."""
_FLUSH_S = 0.001
_WATCH_S = 0.05


class Sink:
    """One capture of one node: numbers its blocks' interfaces, queues them, counts.

    `descriptor` is a Unix stream socket, taken over unless OSError is raised (EINVAL, ENOTSOCK: it is none, or a
    number is out of range). An interface number of -1 leaves that side out.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        host_interface: int,
        wire_interface: int,
        snaplen: int = 0,
        start_ns: int = 0,
        limit_bytes: int = QUEUE_BYTES,
    ) -> None:
        if not all(-1 <= number < 1 << 16 for number in (host_interface, wire_interface)):
            raise OSError(errno.EINVAL, "an interface number is from -1 to 65535")
        if not 0 <= snaplen <= pcapng.MAX_SNAPLEN:
            raise OSError(errno.EINVAL, f"snaplen is from 0 to {pcapng.MAX_SNAPLEN}")
        self._socket = _stream_socket(descriptor)
        self.host_interface = host_interface
        self.wire_interface = wire_interface
        self._snaplen = snaplen
        self._start_ns = start_ns
        self._limit_bytes = limit_bytes
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._ending = False
        self.closed = False
        self.received: dict[int, int] = {number: 0 for number in (host_interface, wire_interface) if number >= 0}
        self.dropped: dict[int, int] = dict.fromkeys(self.received, 0)
        """Frames seen, and of them those dropped, by interface."""

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def write(self, interface: int, timestamp_ns: int, frames: Frames, direction: Direction, packet_id: int) -> None:
        """Queues a batch, or drops it where the reader is too far behind. An interface left out takes nothing."""
        if interface < 0 or self._ending or self.closed or not len(frames):
            return
        self.received[interface] += len(frames)
        if self._queued_bytes + frames.nbytes > self._limit_bytes:
            self.dropped[interface] += len(frames)
            return
        self._push(
            pcapng.packets(interface, timestamp_ns, frames, direction, packet_id=packet_id, snaplen=self._snaplen)
        )
        self.flush()

    def poll(self, now_ns: int) -> None:
        """Notices that the reader wants no more, and sends what waits."""
        if not self._ending and not self.closed:
            try:
                if not self._socket.recv(1, _AT_ONCE):
                    self._end(now_ns)
            except BlockingIOError:
                pass
            except OSError:
                self.close()
        self.flush()

    def flush(self) -> None:
        """Sends as much as the reader takes now. Closes where the reader is gone, or all is said."""
        try:
            while self._queue:
                pieces = [piece for piece, _ in zip(self._queue, range(_PIECES), strict=False)]
                self._sent(self._socket.sendmsg(pieces, (), _AT_ONCE))
        except BlockingIOError:
            return
        except OSError:
            self.close()
        if self._ending:
            self.close()

    def close(self) -> None:
        self.closed = True
        self._queue.clear()
        self._queued_bytes = 0
        self._socket.close()

    def _push(self, blocks: bytes) -> None:
        self._queue.append(memoryview(blocks))
        self._queued_bytes += len(blocks)

    def _sent(self, count: int) -> None:
        self._queued_bytes -= count
        while count:
            first = self._queue.popleft()
            if count < len(first):
                self._queue.appendleft(first[count:])
                return
            count -= len(first)

    def _end(self, now_ns: int) -> None:
        self._ending = True
        for interface, received in self.received.items():
            self._push(
                pcapng.interface_statistics(
                    interface,
                    start_ns=self._start_ns,
                    end_ns=now_ns,
                    received=received,
                    dropped=self.dropped[interface],
                )
            )


def _stream_socket(descriptor: int) -> socket.socket:
    taken = socket.socket(fileno=descriptor)
    if (taken.family, taken.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        taken.detach()
        raise OSError(errno.EINVAL, "a capture needs a Unix stream socket")
    taken.setblocking(False)
    return taken


class CapturePoint:
    """The captures of one node. `ip` makes packet numbers unique among nodes; `epoch_ns` is the time of now = 0."""

    def __init__(self, ip: int, epoch_ns: int = 0) -> None:
        self._ip = ip
        self._epoch_ns = epoch_ns
        self.sinks: list[Sink] = []
        self.frames = 0
        self.dropped = 0
        """Frames offered to captures that are over, and of them those dropped."""

    def start(self, descriptor: int, now: float, *, host_interface: int, wire_interface: int, snaplen: int = 0) -> Sink:
        """Begins a capture into a stream socket (see Sink). Ends by itself once its reader is done.

        Raises OSError, the descriptor left alone, for what Sink refuses and (EBUSY) for one capture too many.
        """
        if len(self.sinks) >= MAX_CAPTURES:
            raise OSError(errno.EBUSY, f"{MAX_CAPTURES} captures go on at this NIC already: end one first")
        sink = Sink(
            descriptor,
            host_interface=host_interface,
            wire_interface=wire_interface,
            snaplen=snaplen,
            start_ns=self.time_ns(now),
        )
        self.sinks.append(sink)
        return sink

    def time_ns(self, now: float) -> int:
        return self._epoch_ns + round(now * 1e9)

    def packet_number(self, packet_id: int) -> int:
        """What a capture calls a packet that this node's NIC numbered; 0 stays 0."""
        return self._ip << 32 | packet_id & 0xFFFFFFFF if packet_id else 0

    def poll(self, now: float) -> None:
        """Sends what waits and lets go of what is over."""
        for sink in self.sinks:
            sink.poll(self.time_ns(now))
        self._sweep()

    def next_time(self, now: float) -> float | None:
        """When to poll again: None where nothing is captured."""
        if not self.sinks:
            return None
        return now + (_FLUSH_S if any(sink.queued_bytes for sink in self.sinks) else _WATCH_S)

    def counters(self) -> dict[str, int]:
        frames = self.frames + sum(sum(sink.received.values()) for sink in self.sinks)
        dropped = self.dropped + sum(sum(sink.dropped.values()) for sink in self.sinks)
        return {"capture_frames": frames, "capture_dropped": dropped}

    def close(self) -> None:
        """Ends all captures at once; what their readers do not take now is lost."""
        for sink in self.sinks:
            sink.flush()
            sink.close()
        self._sweep()

    def _sweep(self) -> None:
        for sink in [sink for sink in self.sinks if sink.closed]:
            self.frames += sum(sink.received.values())
            self.dropped += sum(sink.dropped.values())
            self.sinks.remove(sink)


class LinkTap:
    """A link around a link: shows the frames that leave and arrive to the node's captures."""

    def __init__(self, inner: Link, point: CapturePoint) -> None:
        self._inner = inner
        self._point = point
        self._poll_at: float | None = None

    @property
    def mtu(self) -> int:
        return self._inner.mtu

    def send(self, frames: Frames, now: float) -> None:
        if self._point.sinks:
            self._show(frames, now, Direction.OUTBOUND)
        self._inner.send(frames, now)

    def receive(self, now: float) -> Frames | None:
        frames = self._inner.receive(now)
        if frames is not None and self._point.sinks:
            self._show(frames, now, Direction.INBOUND)
        return frames

    def _show(self, frames: Frames, now: float, direction: Direction) -> None:
        number = self._point.packet_number(frames.packet_id) if direction is Direction.OUTBOUND else 0
        time_ns = self._point.time_ns(now)
        for sink in self._point.sinks:
            sink.write(sink.wire_interface, time_ns, frames, direction, number)

    def advance(self, now: float) -> None:
        if self._point.sinks:
            self._point.poll(now)
            self._poll_at = self._point.next_time(now)
        self._inner.advance(now)

    def next_time(self) -> float | None:
        inner = self._inner.next_time()
        if not self._point.sinks:
            return inner
        own = self._poll_at if self._poll_at is not None else 0.0
        return own if inner is None else min(own, inner)

    def room(self, now: float) -> int:
        return self._inner.room(now)

    def counters(self) -> dict[str, int]:
        return self._inner.counters() | self._point.counters()

    def close(self) -> None:
        self._point.close()
        self._inner.close()


class HostTap:
    """What passes between a node's TCP and its NIC, for the node to tell."""

    def __init__(self, point: CapturePoint) -> None:
        self._point = point

    @property
    def active(self) -> bool:
        """Somebody captures."""
        return bool(self._point.sinks)

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:
        """A segment that the NIC took, as far as it took it."""
        if self._point.sinks and transmitted.frames:
            number = self._point.packet_number(transmitted.packet_id)
            frames = host_frames(segment, transmitted.consumed, transmitted.packet_id)
            self._show(frames, now, Direction.OUTBOUND, number)

    def received(self, segment: Segment, now: float) -> None:
        """A segment that the NIC handed up, its floats restored."""
        if self._point.sinks:
            self._show(host_frames(segment, len(segment.payload)), now, Direction.INBOUND, 0)

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:
        """A frame that is not TCP: ARP, ICMP."""
        if self._point.sinks:
            self._show(Frames.of([data]), now, Direction.OUTBOUND if outgoing else Direction.INBOUND, 0)

    def _show(self, frames: Frames, now: float, direction: Direction, number: int) -> None:
        time_ns = self._point.time_ns(now)
        for sink in self._point.sinks:
            sink.write(sink.host_interface, time_ns, frames, direction, number)
