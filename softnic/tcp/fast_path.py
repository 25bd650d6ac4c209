"""Established connections with SACK, in C (native/tcp/fast_path.h): the steps of input.py, ack.py and output.py.

Each step is tried in C first. It does all of it or nothing; then Python does it, with the same fields (flow.py). What C
leaves is done here: events for the application, the wake-up of the flow and its place among the timers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from softnic._native import ffi, lib
from softnic.packet.segment import Segment, Transmitted
from softnic.tcp.ack import count_recoveries
from softnic.tcp.flow import Flow
from softnic.tcp.output import add_payload, count_sent, on_blocked, output

_SEGMENT = struct.Struct("=17I?")
_NO_SACKS = (0,) * (2 * lib.SN_MOST_SACKS)
_OUTPUT = struct.Struct("=3q6I")
SendOutput = Callable[[Flow, Any, float], Transmitted | None]
"""Sends what an `sn_output` describes, and counts it; None: the peer's MAC address is not known yet."""
_DELIVER, _WRITABLE, _SCHEDULE, _WAKE = lib.SN_DELIVER, lib.SN_WRITABLE, lib.SN_SCHEDULE, lib.SN_WAKE
_DATA, _ACK, _AGAIN, _KEEP = lib.SN_DATA, lib.SN_ACK, lib.SN_AGAIN, lib.SN_KEEP


class FastPath:
    """The fast path of one stack. Without `send` it makes segments, and sends them as output.py does."""

    def __init__(self, send: SendOutput | None) -> None:
        self._send = send or _send_segment
        self._segment = ffi.new("sn_segment *")
        self._fields = ffi.buffer(self._segment)
        self._out = ffi.new("sn_output *")

    def receive(self, flow: Flow, s: Segment, now: float) -> bool:
        """Processes a segment. Returns False, and changes nothing, if Python has to do it."""
        value, echo = s.timestamps or (0, 0)
        fields = (s.seq, s.ack, s.window, s.flags, value, echo, len(s.payload), s.frames, len(s.sacks))
        sacks = tuple(number for block in s.sacks for number in block) + _NO_SACKS if s.sacks else _NO_SACKS
        _SEGMENT.pack_into(self._fields, 0, *fields, *sacks[: len(_NO_SACKS)], s.timestamps is not None)
        if not lib.sn_flow_receives(flow.c, self._segment, now):
            return False
        _finish(flow, lib.sn_flow_receive(flow.c, self._segment, now), s)
        return True

    def output(self, flow: Flow, now: float, frames: int) -> int:
        """Sends what is most urgent, as output.py's `output`."""
        sent, left = 0, _AGAIN
        while left & _AGAIN:
            left = lib.sn_flow_output(flow.c, frames, flow.tcp.link_full_at, now, self._out)
            sent += self._send_output(flow, left, now) if left else output(flow, now, frames)
        return sent

    def _send_output(self, flow: Flow, left: int, now: float) -> int:
        """Does what `sn_flow_output` has left. Returns the wire bytes."""
        tcp = flow.tcp
        if left & _SCHEDULE:
            tcp.schedule(flow)
        tcp.counters.fast_path_sent += left & (_DATA | _ACK) > 0
        sent = 0
        if left & _DATA:
            sent = self._send_data(flow, now)
            if not sent and flow.ack_pending:
                lib.sn_flow_ack(flow.c, now, self._out)
                left |= _ACK
        if left & _ACK:
            sent += self._send_ack(flow, now)
        return sent

    def _send_data(self, flow: Flow, now: float) -> int:
        """Sends the data that `sn_flow_output` has chosen. Returns the wire bytes."""
        result = self._send(flow, self._out, now)
        if result is None or not result.frames:
            on_blocked(flow, now)
            return 0
        consumed, sent_frames, wire_bytes, _ = result
        if lib.sn_flow_sent(flow.c, self._out, consumed, sent_frames, wire_bytes, now) & _SCHEDULE:
            flow.tcp.schedule(flow)
        return wire_bytes

    def _send_ack(self, flow: Flow, now: float) -> int:
        """Sends the empty segment in `_out`. Returns the wire bytes."""
        return count_sent(flow, self._send(flow, self._out, now))


def _finish(flow: Flow, left: int, s: Segment) -> None:
    """Does what the fast path left of a received segment."""
    flow.tcp.counters.fast_path_received += 1
    count_recoveries(flow.tcp.counters, left)
    if left & _DELIVER:
        flow.rcv.append(s.payload)
        flow.rcv.deliver_filled()
    if left & _KEEP and flow.rcv.keep(flow.rcv.position(s.seq), s.payload):
        flow.tcp.counters.out_of_order += 1
    if left & _WRITABLE:
        flow.on_writable()
    if left & _DELIVER:
        flow.on_readable()
    if left & _SCHEDULE:
        flow.tcp.schedule(flow)
    if left & _WAKE:
        flow.tcp.wake(flow)


def segment_of(flow: Flow, out: Any) -> Segment:
    """Returns the segment that an `sn_output` describes."""
    start, end, _, sequence, ack, flags, window, value, echo = _OUTPUT.unpack_from(ffi.buffer(out))
    (src, sport), (dst, dport) = flow.local, flow.peer
    stamps = (value, echo) if flow.use_timestamps else None
    segment = Segment(src, dst, sport, dport, sequence, ack, flags, window, 0, stamps, flow=flow, ttl=flow.ttl)
    if end > start:
        add_payload(flow, segment, start, end)
    numbers = out.sacks
    segment.sacks = tuple((numbers[2 * block], numbers[2 * block + 1]) for block in range(out.sack_blocks))
    return segment


def _send_segment(flow: Flow, out: Any, now: float) -> Transmitted | None:
    return flow.tcp.transmit(segment_of(flow, out), out.frames, now)
