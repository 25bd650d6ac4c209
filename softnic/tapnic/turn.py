"""The turn of a kernel's NIC, in C (native/nic/tap_nic.h), and its control plane.

C moves the kernel's packets to the link and back. It asks here about segments that open or end a connection, tagged
ones of unknown connections, adaptive codecs, and paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softnic._native import ffi, lib
from softnic.link.base import Link
from softnic.nic.adaptive_codec import AdaptiveCodec
from softnic.nic.link_turn import NEVER, LinkTurn, define_calls, set_calls
from softnic.nic.nic import Nic
from softnic.nic.observer import NodeObserver
from softnic.nic.offload import PLAIN
from softnic.packet.headers import HEADER_BYTES, pack_headers
from softnic.packet.segment import Flags, Segment, Tag, Transmitted
from softnic.tapnic.device import TapDevice
from softnic.tapnic.flows import TapFlow, TapFlowTable
from softnic.tapnic.segments import segment_of

_TCP_OFFSET = 46
_SYN = int(Flags.SYN)
_NOTHING = memoryview(b"")
_CALLS = ("outgoing", "incoming", "find_path", "encodes", "encoded", "record", "exhausted")
_DECIDING = ("outgoing", "incoming", "find_path", "encodes")
"""Those of them that return a decision."""


@dataclass(slots=True)
class TapNicCounters:
    """Counters beside those of `NicCounters` and the device."""

    tx_exact_bytes: int = 0
    """Bytes of tagged ranges sent RAW and unaltered: parts of words, or of a range whose beginning was not seen."""
    tx_drop_unknown: int = 0
    """Tagged segments of connections older than this NIC. Both ends of these are reset."""
    rx_drop_unknown: int = 0
    tx_drop_header: int = 0
    """Packets of the kernel that cannot be cut into frames."""
    rx_drop_header: int = 0
    """Offloaded frames with IPv4 options."""


class TapTurn(LinkTurn):
    """The turn between a kernel's device and a link. `capture` observes the kernel's side."""

    def __init__(self, nic: Nic, tap: TapDevice, flows: TapFlowTable, link: Link, capture: NodeObserver | None) -> None:
        self.counted = TapNicCounters()
        self._tap, self._flows = tap, flows
        self._schedule = ffi.new("sn_schedule *")
        self._adaptive: AdaptiveCodec | None = None
        nic.turn.tap, nic.turn.schedule = tap.c, self._schedule
        tap.c.flows = flows.c
        set_calls(tap.c.control, _CALLS)
        for tos in nic.offloads.codecs:
            choice, entry = nic.offloads.codec_of(tos, None), tap.c.codecs[tos >> 2]
            entry.codec, entry.parameter, entry.is_adaptive = choice.number, choice.parameter, bool(choice.adaptive)
            entry.block = nic.offloads.cuts_of(Tag(tos)).block
        super().__init__(nic, link, capture)

    @property
    def is_due(self) -> bool:
        """Whether there is something to do at once."""
        return self._tap.is_busy and not self.c.is_full

    def settle(self) -> None:
        super().settle()
        due = self._flows.next_time()
        self.c.requests_at = NEVER if due is None else due

    # What C asks for, in the words of `sn_control`

    def on_run(self, index: int, now: float) -> None:  # noqa: ARG002
        self._nic.rx.drop(self.c.batch.runs[index].kind)

    def on_advance_requests(self, now: float) -> None:
        self._flows.sweep(now)
        self.settle()

    # And in those of `sn_tap_control`

    def on_outgoing(self, index: int, now: float) -> bool:
        packet = self._tap.c.packets[index]
        if packet.flags & _SYN:
            self._add_option(packet)
        key = packet.dst, packet.dport, packet.sport, packet.src
        flow = self._flows.find(*key)
        if flow is not None:
            self._flows.on_sent(key, flow, packet.flags, now)
            self.settle()
        elif packet.length and self._nic.offloads.selects(packet.tos):
            self.counted.tx_drop_unknown += 1
            self._reset_kernel(packet, now)
            return False
        return True

    def _header(self, packet: Any) -> bytearray:
        """Return a copy of the headers of a packet that was read."""
        return bytearray(ffi.buffer(self._tap.c.headers + packet.header, packet.header_length))

    def _add_option(self, packet: Any) -> None:
        """Insert the NIC's option before those of a SYN; `sn_cut` computes lengths other than the data offset."""
        header = self._header(packet)
        payload = memoryview(ffi.buffer(self._tap.c.buffer + packet.offset, packet.length))
        segment = segment_of(header, payload)
        assert segment.options is not None
        option = self._flows.syn_option(segment, segment.options, len(header) - HEADER_BYTES)
        header[HEADER_BYTES:HEADER_BYTES] = option
        header[_TCP_OFFSET] += len(option) // 4 << 4
        packet.header_length = len(header)
        ffi.memmove(self._tap.c.headers + packet.header, header, len(header))

    def _reset_kernel(self, packet: Any, now: float) -> None:
        """Reset the kernel's end of a connection that has no flow."""
        header = self._header(packet)
        reset = Segment(packet.dst, packet.src, packet.dport, packet.sport, packet.ack, flags=Flags.RST)
        self._tap.write(pack_headers(reset, bytes(header[6:12]), bytes(header[:6]), 0))
        if self._capture is not None:
            self._capture.received(reset, now)

    def on_incoming(self, index: int, now: float) -> bool:
        run, batch = self.c.batch.runs[index], self.c.batch
        start = batch.data + batch.offsets[run.first]
        header = bytearray(ffi.buffer(start, HEADER_BYTES + run.options_length))
        key = run.src, run.sport, run.dport, run.dst
        if run.flags & _SYN:
            segment = segment_of(header, _NOTHING)
            assert segment.options is not None
            self._flows.received_syn(segment, segment.options)
        flow = self._flows.find(*key)
        if flow is not None:
            self._flows.on_received(key, flow, run.flags, now)
            self.settle()
        elif run.payload_bytes and self._nic.offloads.selects(run.tos):
            self.counted.rx_drop_unknown += run.count
            self._reset_peer(header, now)
            return False
        return True

    def _reset_peer(self, header: bytearray, now: float) -> None:
        """Reset the peer's end of a connection that has no flow."""
        asked = segment_of(header, _NOTHING)
        reset = Segment(asked.dst, asked.src, asked.dport, asked.sport, asked.ack, flags=Flags.RST)
        answer = pack_headers(reset, bytes(header[6:12]), self._nic.mac, 0)
        self._nic.emit(answer, _NOTHING, 1, None, PLAIN, None, 0, 1, now)
        self.settle()

    def on_find_path(self, path: Any, now: float) -> bool:  # noqa: ARG002
        """Find none: frames pass through a link in Python."""
        return False

    def on_encodes(self, c: Any, tos: int) -> bool:
        flow: TapFlow | None = self._flows.find(c.peer, c.peer_port, c.port, c.address)
        assert flow is not None
        _, self._adaptive = self._nic.choose_codec(tos, None, flow.codecs, flow)
        assert self._adaptive is not None
        self._nic.codec_timer.start()
        return not self._adaptive.raw

    def on_encoded(self, c: Any, is_limited: bool, now: float) -> None:  # noqa: ARG002
        adaptive, cut = self._adaptive, self.c.tx.result
        assert adaptive is not None
        codec_s = self._nic.codec_timer.stop(cut.consumed, adaptive.raw)
        adaptive.sent(now, cut.consumed, cut.frame_bytes, codec_s, is_limited)

    def on_record(self, direction: int, header: Any, header_bytes: int, payload: Any, length: int, now: float) -> None:
        if self._capture is None:
            return
        data = memoryview(ffi.buffer(payload, length)) if length else _NOTHING
        segment = segment_of(bytearray(ffi.buffer(header, header_bytes)), data)
        if direction == lib.SN_CAPTURE_OUTBOUND:
            tx = self.c.tx
            sent = Transmitted(tx.result.consumed, tx.result.frames, tx.result.frame_bytes, tx.packet_id)
            self._capture.sent(segment, sent, now)
        else:
            self._capture.received(segment, now)

    def on_exhausted(self) -> None:
        """End the turn as any call does that finds no memory."""
        raise MemoryError


define_calls(_CALLS, counting=_DECIDING)
