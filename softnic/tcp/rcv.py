"""Receive side of a connection: sequence space, window, in-order data (RFC 9293, sections 3.3.1, 3.8.6).

A segment is taken whole if it starts inside the window, because a frame of a compressed stream cannot be taken in part;
so the buffer may be exceeded by one segment. The right edge of the window is rounded up to the unit of the scale, so
that it does not move back. Only where rounding would exceed the buffer by more than a unit, it moves back by less than
a unit (RFC 7323, section 2.4); data left of the largest edge is still accepted. The edge moves forward only by enough
to be worth it (silly window avoidance). Out-of-order data: reassembly.py.

In-order data is copied to memory of the flow (native/tcp/receive_buffer.h), where its reader takes it from.
"""

from __future__ import annotations

from collections.abc import Callable

from softnic._fields import Memory, ReceiveFields
from softnic._native import ffi, lib
from softnic.tcp import seq
from softnic.tcp.budget import Budget
from softnic.tcp.config import LARGEST_WINDOW
from softnic.tcp.reassembly import Reassembly


class ReceiveState(ReceiveFields):
    """Positions as in seq.py; the peer's SYN has position 0."""

    __slots__ = ("_c", "_reassembly", "buffer")

    capacity: int
    """Limit of unread bytes; it grows (autotune.py) and never shrinks."""
    initial: int
    """The first capacity."""
    largest: int
    """Limit of the capacity: the largest value of the window field."""
    irs: int
    """The peer's initial sequence number."""
    rcv_nxt: int
    rcv_adv: int
    """The right edge of the window as last advertised."""
    scale: int
    """Shift of the window field in sent segments."""
    unread: int
    """Bytes in `buffer`."""
    eof: bool
    """The peer's FIN follows directly on them."""
    fin: int | None
    """Position of the peer's FIN, once seen."""

    def __init__(
        self,
        capacity: int,
        max_chunks: int,
        budget: Budget | None = None,
        dropped: Callable[[int], None] = lambda _count: None,
        *,
        memory: Memory | None = None,
    ) -> None:
        del memory
        self._c = ffi.cast("sn_flow *", self.memory.address)
        self.capacity = self.initial = capacity
        self.largest = LARGEST_WINDOW
        self.buffer = lib.sn_flow_receive_buffer(self._c)
        """The `sn_receive_buffer`: in order, for the application."""
        self._reassembly = Reassembly(max_chunks, budget, dropped, memory=self.memory)
        self.fin = None

    @property
    def rcv_wnd(self) -> int:
        return max(0, self.rcv_adv - self.rcv_nxt)

    @property
    def has_gap(self) -> bool:
        """Out-of-order data waits for missing bytes."""
        return self._reassembly.has_gap

    @property
    def reports(self) -> bool:
        """A SACK option would have blocks."""
        return self._reassembly.has_gap or self._reassembly.has_repeated

    @property
    def ahead(self) -> int:
        """Bytes that wait behind gaps."""
        return self._reassembly.size

    @property
    def bytes_received(self) -> int:
        return max(0, self.rcv_nxt - 1 - self.eof)

    def negotiated(self, scale: int) -> None:
        """Ends the handshake: the window field counts units of 2^scale bytes from here on."""
        self.scale = scale
        self.largest = 0xFFFF << scale
        self.capacity = min(self.capacity, self.largest)

    def on_syn(self, irs: int) -> None:
        """Takes the peer's initial sequence number."""
        self.irs, self.rcv_nxt = irs, 1

    def grow(self, size: int) -> None:
        self.capacity += size

    def advertise(self) -> int:
        """Returns the window field of a segment sent now. Moves the right edge if that is worth it."""
        return int(lib.sn_flow_advertise(self._c))

    def put(self, position: int, payload: memoryview, fin: bool) -> bool:
        """Takes a segment that starts before the window's right edge. Returns False if it had to be dropped."""
        end, last, nxt = position + len(payload), self.fin, self.rcv_nxt
        if fin and last is None:
            self.fin = last = end
        if last is not None and end > last:
            payload = payload[: max(0, last - position)]
            end = position + len(payload)
        if position > nxt:
            return not payload or self.keep(position, payload)
        if position < nxt:
            self.repeated(position, min(end, nxt))
        if end > nxt:
            self._deliver(payload[nxt - position :] if position < nxt else payload)
            if self._reassembly.has_gap:
                lib.sn_flow_fill_gap(self._c)
                self.deliver_filled()
        if last is not None and last == self.rcv_nxt and not self.eof:
            self.rcv_nxt += 1
            self.eof = True
        return True

    def keep(self, position: int, payload: memoryview) -> bool:
        """Keeps a payload, not empty, that starts behind a gap. Returns False if there is no space."""
        # growth of the window is charged already, whether it is filled in order or not
        return self._reassembly.keep(position, payload, max(0, self.capacity - self.initial))

    def deliver_filled(self) -> None:
        """Appends what has waited for the bytes before it, and is counted already."""
        lib.sn_reassembly_deliver(lib.sn_flow_reassembly(self._c), self.buffer)

    def repeated(self, start: int, end: int) -> None:
        """Notes bytes that arrived a second time, to be reported by D-SACK (RFC 2883)."""
        if end > start:
            self._reassembly.note_repeated(start, end)

    @property
    def waiting(self) -> list[tuple[int, memoryview]]:
        """Out-of-order data in chunks, each with its position."""
        return self._reassembly.chunks()

    def sacks(self) -> tuple[tuple[int, int], ...]:
        """Returns the blocks of a SACK option sent now, in sequence numbers."""
        return tuple(
            (seq.number(self.irs, start), seq.number(self.irs, end)) for start, end in self._reassembly.report()
        )

    def _deliver(self, payload: memoryview) -> None:
        """Counts and appends bytes that are next in order."""
        size = len(payload)
        if size:
            self.rcv_nxt += size
            self.unread += size
            self.append(payload)

    def append(self, payload: memoryview) -> None:
        """Appends bytes that are counted already. Raises MemoryError."""
        if lib.sn_receive_buffer_append(self.buffer, ffi.from_buffer(payload), len(payload)):
            raise MemoryError("no memory for received bytes")

    @property
    def received(self) -> list[memoryview]:
        """The bytes in `buffer`, valid until the next call of any method of the stack."""
        views, chunk = [], self.buffer.first
        while chunk:
            views.append(memoryview(ffi.buffer(chunk.data + chunk.start, chunk.end - chunk.start)))
            chunk = chunk.next
        return views

    def consume(self, count: int) -> None:
        """Removes the first `count` bytes of `buffer`."""
        if not 0 <= count <= self.unread:
            raise ValueError(f"{count} bytes read of {self.unread}")
        lib.sn_receive_buffer_drop(self.buffer, count)
        self.unread -= count

    def consumed(self, count: int) -> None:
        """Counts bytes as read that were taken from `buffer` before."""
        self.unread -= count

    def prune(self) -> None:
        """Drops out-of-order data: the missing bytes have not arrived."""
        self._reassembly.prune()

    def clear(self) -> None:
        """Releases out-of-order data at the end of the connection."""
        self._reassembly.clear()
