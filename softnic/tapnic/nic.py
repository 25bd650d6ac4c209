"""The NIC of a host that uses its kernel's TCP, between the kernel's TAP device and a link.

Egress: the kernel's super-segments are cut into frames by `Nic.emit`; SYNs get the NIC's option; tagged payload is
encoded as `RetransmitCache` decides; everything else passes unchanged. Ingress: runs of frames become super-segments,
tagged ones decoded. TCP, ARP, ICMP and congestion control are the kernel's.

Packets are never dropped for lack of space on the link: the kernel's next packets are read only when those read before
have left, and wait in the device until then (its queue is the driver's ring). Sans-IO, as `Node`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Unpack

from softnic import codecs
from softnic._native import lib
from softnic.link.base import Link
from softnic.nic.adaptive_codec import AdaptiveCodec
from softnic.nic.nic import Nic, NicOptions
from softnic.nic.observer import SegmentObserver
from softnic.nic.offload import PLAIN, RAW, TOS_MASK, CodecChoice
from softnic.nic.rx import KIND, Run
from softnic.nic.segmenter import MAX_FRAMES
from softnic.packet.frames import Frames
from softnic.packet.headers import HEADER_BYTES, pack_headers
from softnic.packet.ipv4 import PROTOCOL_TCP
from softnic.packet.segment import Flags, Segment, Tag
from softnic.tapnic.device import OTHER, TCP, TapDevice, TapPacket
from softnic.tapnic.flows import TapFlow, TapFlowTable, flow_max_payload
from softnic.tapnic.retransmit_cache import LONGEST_BLOCK, TxPart
from softnic.tapnic.segments import segment_of

MAX_BATCHES = 64
"""Batches received from the link, and reads of the device, in one `advance`."""

_ETHERNET = 14
_IP_TOS, _IP_PROTOCOL = _ETHERNET + 1, _ETHERNET + 9
_TCP_SEQ, _TCP_OFFSET, _TCP_FLAGS = 38, 46, 47
_SEQ = Struct("!I")
_SYN, _ENDING, _FIN = int(Flags.SYN), int(Flags.PSH | Flags.FIN), int(Flags.FIN)
_KERNELS = frozenset({lib.SN_DROP_IP, lib.SN_DROP_FRAGMENT})
"""Kinds of frames that Nic drops but a kernel may use."""
_NOTHING = memoryview(b"")


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


@dataclass(slots=True)
class _Outgoing:
    """Part of a packet, to be sent before another packet is read."""

    header: bytearray
    payload: memoryview
    max_payload: int
    flow: TapFlow | None
    choice: CodecChoice
    adaptive: AdaptiveCodec | None
    block_offset: int


class TapNic:
    """The NIC of the kernel behind a TAP device.

    Parameters
    ----------
    ip : int
        The address by which the node is named.
    mac : bytes
        The MAC of the device.
    tap : TapDevice
        The kernel's side.
    link : Link
        The wire side.
    capture : SegmentObserver, optional
        Observes the host side.
    **options
        Options of the NIC.
    """

    def __init__(
        self,
        ip: int,
        mac: bytes,
        tap: TapDevice,
        link: Link,
        *,
        capture: SegmentObserver | None = None,
        **options: Unpack[NicOptions],
    ) -> None:
        self.ip = ip
        self.link = link
        self.tap = tap
        self.nic = Nic(link, mac, ip, **options)
        self.flows = TapFlowTable(codecs.BUILT_IN)
        self.counted = TapNicCounters()
        self._capture = capture
        self._pending: deque[_Outgoing] = deque()
        self._now = 0.0
        self._more = False

    def advance(self, now: float) -> None:
        """Receive, send and expire everything due at `now`."""
        self._now = now
        self._more = False
        self.link.advance(now)
        self._receive(now)
        self._send(now)
        self.flows.sweep(now)

    def next_time(self) -> float | None:
        """Return when `advance` must be called next if nothing happens before; None: not at all."""
        return self._now if self._more else self.link.next_time()

    def counters(self) -> dict[str, int]:
        """Return all counters of NIC, device and link, by name."""
        device = {f"tap_{name}": value for name, value in asdict(self.tap.counted).items()}
        return {**asdict(self.nic.counters), **asdict(self.counted), **device, **self.link.counters()}

    # --- egress

    def _send(self, now: float) -> None:
        for _ in range(MAX_BATCHES):
            if not self._send_pending(now):
                return
            packets = self.tap.read()
            if not packets:
                return
            for packet in packets:
                self._process(packet, now)
        self._more = True

    def _send_pending(self, now: float) -> bool:
        """Send waiting packets while the link has space. Returns whether space is left."""
        while self._pending:
            if not self._push(self._pending[0], now):
                return False
            self._pending.popleft()
        return self.link.tx_space(now) > 0

    def _push(self, out: _Outgoing, now: float) -> bool:
        """Send as much of a packet as the link has space for. Returns whether that is all."""
        frame = self.link.mtu + _ETHERNET
        while (max_payload := self.link.tx_space(now)) > 0:
            header, payload = out.header, out.payload
            frames = min(max(1, max_payload // frame), MAX_FRAMES)
            sent = self.nic.emit(
                bytes(header),
                payload,
                out.max_payload,
                out.flow,
                out.choice,
                out.adaptive,
                out.block_offset,
                frames,
                now,
            )
            if self._capture is not None and self._capture.active:
                self._capture.sent(segment_of(header, payload), sent, now)
            if sent.consumed == len(payload):
                return True
            out.payload = payload[sent.consumed :]
            out.block_offset = (out.block_offset + sent.consumed) % LONGEST_BLOCK
            _SEQ.pack_into(header, _TCP_SEQ, (_SEQ.unpack_from(header, _TCP_SEQ)[0] + sent.consumed) & 0xFFFFFFFF)
        return False

    def _send_or_queue(self, out: _Outgoing, now: float) -> None:
        """Send a packet, or queue what cannot be sent now and all behind it."""
        if self._pending or not self._push(out, now):
            self._pending.append(out)

    def _process(self, packet: TapPacket, now: float) -> None:
        if packet.kind == TCP:
            self._process_segment(packet, now)
        elif packet.kind == OTHER:
            frame = bytes(self.tap.payload(packet))
            if self._capture is not None:
                self._capture.frame(frame, now, outgoing=True)
            self.nic.send_frame(frame, now)
        else:
            self.counted.tx_drop_header += 1

    def _process_segment(self, packet: TapPacket, now: float) -> None:
        header, payload = self.tap.header(packet), self.tap.payload(packet)
        if packet.flags & _SYN:
            _add_option(header, self._option(header, payload))
        key = (packet.dst, packet.dport, packet.sport, packet.src)
        flow = self.flows.find(*key)
        tos = packet.tos & TOS_MASK
        tagged = packet.length > 0 and self.nic.offloads.selects(tos)
        if flow is not None:
            self.flows.on_sent(key, flow, packet.flags, now)
            flow.bytes_sent += packet.length
            if packet.length and flow.codecs is not None:
                block = self.nic.offloads.cuts_of(Tag(tos)).block
                parts = flow.sent.parts(packet.seq, payload, tos, tagged, block)
                self._send_parts(packet, header, parts, flow, now)
                return
        elif tagged:
            self.counted.tx_drop_unknown += 1
            self._reset_kernel(packet, header, now)
            return
        max_payload = flow_max_payload(flow, self.link.mtu, len(header))
        self._send_or_queue(
            _Outgoing(header, payload, min(packet.segment or max_payload, max_payload), flow, PLAIN, None, 0), now
        )

    def _option(self, header: bytearray, payload: memoryview) -> bytes:
        segment = segment_of(header, payload)
        assert segment.options is not None
        return self.flows.syn_option(segment, segment.options, len(header) - HEADER_BYTES)

    def _send_parts(self, packet: TapPacket, header: bytearray, parts: list[TxPart], flow: TapFlow, now: float) -> None:
        """Send a segment to a peer that decodes, in the parts given by the retransmit cache."""
        end = (packet.seq + packet.length) & 0xFFFFFFFF
        if not parts:  # all acknowledged; the peer may have missed the FIN and answers in any case
            _SEQ.pack_into(header, _TCP_SEQ, end if packet.flags & _FIN else packet.seq)
            self._send_or_queue(_Outgoing(header, _NOTHING, 1, flow, PLAIN, None, 0), now)
            return
        max_payload = flow_max_payload(flow, self.link.mtu, len(header))
        max_payload = max(min(packet.segment or max_payload, max_payload), lib.SN_LEAST_MAX_PAYLOAD)
        for part in parts:
            own = bytearray(header)
            number = flow.sent.number(part.position)
            _SEQ.pack_into(own, _TCP_SEQ, number)
            if (number + len(part.payload)) & 0xFFFFFFFF != end:
                own[_TCP_FLAGS] &= ~_ENDING
            choice, adaptive = PLAIN, None
            if part.tagged_range is not None:
                own[_IP_TOS] = part.tagged_range.tos | packet.tos & ~TOS_MASK
                choice, adaptive = (
                    self.nic.choose_codec(part.tagged_range.tos, None, flow.codecs, flow) if part.coded else (RAW, None)
                )
                if not part.coded:
                    self.counted.tx_exact_bytes += len(part.payload)
            elif self.nic.offloads.selects(packet.tos):
                own[_IP_TOS] = packet.tos & ~TOS_MASK
            self._send_or_queue(
                _Outgoing(own, part.payload, max_payload, flow, choice, adaptive, part.block_offset), now
            )

    def _reset_kernel(self, packet: TapPacket, header: bytearray, now: float) -> None:
        """Reset the kernel's end of a connection that has no flow."""
        reset = Segment(packet.dst, packet.src, packet.dport, packet.sport, packet.ack, flags=Flags.RST)
        answer = pack_headers(reset, bytes(header[6:12]), bytes(header[:6]), 0)
        self.tap.write_bytes(answer, _NOTHING, 1)
        if self._capture is not None:
            self._capture.received(reset, now)

    # --- ingress

    def _receive(self, now: float) -> None:
        for _ in range(MAX_BATCHES):
            frames = self.link.receive(now)
            if frames is None:
                return
            for index in range(self.nic.rx.parse(frames)):
                run = self.nic.rx.run(index)
                kind = run[KIND]
                if kind == TCP:
                    self._receive_run(frames, run, now)
                elif kind == OTHER or (kind in _KERNELS and not _is_tcp(frames, run[0])):
                    self.nic.counters.rx_other_frames += 1
                    self._pass_up(frames[run[0]], now)
                else:
                    self.nic.rx.drop(kind)
        self._more = True

    def _pass_up(self, frame: bytes, now: float) -> None:
        """Pass a frame up to the kernel as it is."""
        if self._capture is not None:
            self._capture.frame(frame, now, outgoing=False)
        self.tap.write_frame(frame)

    def _receive_run(self, frames: Frames, run: Run, now: float) -> None:
        first, count, src, dst, _, ack, _, _, length, _, options_at, _ = run[:12]
        options, sport, dport, _, _, flags, tos = run[12:19]
        start = int(frames.offsets[first])
        tagged = length > 0 and self.nic.offloads.selects(tos)
        if options_at - start != HEADER_BYTES:  # IPv4 options, which no stack sends unasked
            if tagged:
                self.counted.rx_drop_header += count
                return
            for index in range(first, first + count):
                self._pass_up(frames[index], now)
            return
        header = bytearray(frames.data[start : start + HEADER_BYTES + options])
        key = (src, sport, dport, dst)
        if flags & _SYN:
            segment = segment_of(header, _NOTHING)
            assert segment.options is not None
            self.flows.received_syn(segment, segment.options)
        flow = self.flows.find(*key)
        if flow is not None:
            self.flows.on_received(key, flow, ack, flags, now)
            flow.wire_bytes_received += length + count * (HEADER_BYTES + options)
        if not tagged:
            header[_TCP_FLAGS] = flags
            self._write(header, first, count, length, flow, now)
        elif flow is None:
            self.counted.rx_drop_unknown += count
            self._reset_peer(header, now)
        else:
            self._decode_run(header, run, flow, now)

    def _decode_run(self, header: bytearray, run: Run, flow: TapFlow, now: float) -> None:
        """Pass up a tagged run: in one piece, or by frame if the peer does not encode or a payload is malformed."""
        first, count, seq, length, original, flags = run[0], run[1], run[4], run[8], run[9], run[17]
        rx = self.nic.rx
        codecs = flow.codecs
        whole = rx.decode_payload(first, count, length, original, codecs, flow) if codecs is not None else None
        if whole is not None:
            header[_TCP_FLAGS] = flags
            self._write_bytes(header, whole, flow, now)
            return
        for index in range(first, first + count):
            payload_ref = rx.payloads[index]
            _SEQ.pack_into(header, _TCP_SEQ, seq)
            header[_TCP_FLAGS] = flags if index == first + count - 1 else flags & ~_ENDING
            seq = (seq + payload_ref.original) & 0xFFFFFFFF
            if codecs is None:
                self._write(header, index, 1, payload_ref.length, flow, now)
                seq = (seq - payload_ref.original + payload_ref.length) & 0xFFFFFFFF
                continue
            restored = rx.decode_payload(index, 1, payload_ref.length, payload_ref.original, codecs, flow)
            if restored is None:
                self.nic.counters.rx_drop_offload += 1
            else:
                self._write_bytes(header, restored, flow, now)

    def _write(self, header: bytearray, first: int, count: int, length: int, flow: TapFlow | None, now: float) -> None:
        """Pass up payloads as they are."""
        rx = self.nic.rx
        self._note(length, flow)
        self.tap.write_run(header, rx.data, rx.payloads + first, count)
        if self._capture is not None and self._capture.active:
            found = [rx.payloads[index] for index in range(first, first + count)]
            payload = b"".join(rx.read(payload_ref.offset, payload_ref.length) for payload_ref in found)
            self._capture.received(segment_of(header, memoryview(payload)), now)

    def _write_bytes(self, header: bytearray, payload: memoryview, flow: TapFlow | None, now: float) -> None:
        """Pass up decoded bytes."""
        self._note(len(payload), flow)
        self.tap.write_bytes(header, payload, self._segment(header))
        if self._capture is not None and self._capture.active:
            self._capture.received(segment_of(header, payload), now)

    def _note(self, length: int, flow: TapFlow | None) -> None:
        self.nic.count_received(length)
        if flow is not None:
            flow.bytes_received += length

    def _segment(self, header: bytearray) -> int:
        """Return the TCP payload bytes of a full frame with this header."""
        return self.link.mtu + _ETHERNET - len(header)

    def _reset_peer(self, header: bytearray, now: float) -> None:
        """Reset the peer's end of a connection that has no flow."""
        asked = segment_of(header, _NOTHING)
        reset = Segment(asked.dst, asked.src, asked.dport, asked.sport, asked.ack, flags=Flags.RST)
        answer = pack_headers(reset, bytes(header[6:12]), self.nic.mac, 0)
        self.nic.emit(answer, _NOTHING, 1, None, PLAIN, None, 0, 1, now)


def _add_option(header: bytearray, option: bytes) -> None:
    """Insert a TCP option before the others; `sn_cut` computes lengths other than the data offset."""
    header[HEADER_BYTES:HEADER_BYTES] = option
    header[_TCP_OFFSET] += len(option) // 4 << 4


def _is_tcp(frames: Frames, index: int) -> bool:
    at = int(frames.offsets[index]) + _IP_PROTOCOL
    return int(frames.lengths[index]) > _IP_PROTOCOL and int(frames.data[at]) == PROTOCOL_TCP
