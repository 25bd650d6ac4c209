"""The NIC: segments of the local TCP become frames on a link, and frames become segments.

Egress: the segment's ToS selects a codec that both ends have; one C call cuts, encodes and checksums the whole
super-segment. Ingress: each run of frames (rx.py) usually becomes one segment. The NIC buffers no payload: bytes that
cannot be sent at once are not consumed. Frames to the NIC's own address are looped back here, encoded as any others,
and never reach the link; frames from the link with this source address are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict

from softnic import codecs
from softnic._native import ffi, lib
from softnic.link.base import DirectLink, Link, UdpPath
from softnic.nic.adaptive_codec import AdaptiveCodec, CodecTimer, FixedSpeed
from softnic.nic.counters import NicCounters
from softnic.nic.flows import AdaptiveSlot, FlowSlots, NicFlow, agreed, attach
from softnic.nic.offload import DEFAULT_OFFLOADS, PLAIN, RAW, CodecChoice, OffloadTable
from softnic.nic.rx import KIND, OTHER, Run, RxParser
from softnic.nic.segmenter import MAX_FRAMES, CData, Segmenter
from softnic.packet.frames import Frames
from softnic.packet.headers import HEADER_BYTES, pack_headers, parse_options, unpack_sacks
from softnic.packet.segment import Flags, Segment, Transmitted

Mode = Literal["fill", "packet"]
_ADDRESS, _ETHERNET_HEADER = 6, 14
_SYN = int(Flags.SYN)
_ENDING = int(Flags.PSH | Flags.FIN)
_NOTHING = memoryview(b"")
_OUT_BYTES = 4 << 20
"""For the frames of a segment of a turn: more than any has."""


class NicOptions(TypedDict, total=False):
    """The keyword arguments of `Nic`, for classes that make one."""

    offloads: Mapping[int, str]
    mode: Mode
    equal_sizes: bool
    codec_timer: CodecTimer | None
    link_rate_bps: float | None


class Nic:
    """A NIC with one MAC and one IPv4 address on one link. It is TCP's `Transmitter`.

    Parameters
    ----------
    link : Link
        The wire side.
    mac : bytes
        The NIC's MAC.
    ip : int
        The NIC's address, in host order.
    offloads : mapping of int to str
        Codec by ToS.
    mode : {"fill", "packet"}
        "fill" compresses, then cuts (fewer packets); "packet" cuts to the MSS, then compresses (smaller packets).
    equal_sizes : bool
        Pad the frames of a compressed segment to one size, for links that send equal frames faster.
    codec_timer : CodecTimer, optional
        Measures the codec, for codec = "auto". Without it, "auto" always compresses.
    link_rate_bps : float, optional
        Rate of the link, if known.
    """

    def __init__(
        self,
        link: Link,
        mac: bytes,
        ip: int,
        offloads: Mapping[int, str] = DEFAULT_OFFLOADS,
        mode: Mode = "fill",
        *,
        equal_sizes: bool = False,
        codec_timer: CodecTimer | None = None,
        link_rate_bps: float | None = None,
    ) -> None:
        if mode not in ("fill", "packet"):
            raise ValueError(f"{mode!r} is not a mode: use fill or packet")
        self.link = link
        self.mac = mac
        self.ip = ip
        self.mode: Mode = mode
        self.equal_sizes = equal_sizes
        self.offloads = OffloadTable(offloads)
        self.codecs: int | None = codecs.BUILT_IN
        """Bitmap of the codecs that this NIC offers to peers; None: it sends no offer, and encodes nothing."""
        self.lookup: Callable[[tuple[int, int, int]], FlowSlots | None] = _no_flow
        """Returns the flow of (source address, source port, destination port): TCP's table, once there is one."""
        self.loopback: deque[Frames] = deque()
        """Frames to this NIC itself, received next. Bounded by the windows of its TCP."""
        self.turn = ffi.gc(ffi.new("sn_turn *"), lib.sn_turn_clear)
        """The turn that moves the data of established flows (turn.py)."""
        self._counters = NicCounters()
        self._link_rate_bps = link_rate_bps
        self.codec_timer = codec_timer or FixedSpeed(float("inf"))
        """Measures an adaptive codec."""
        self._direct_link = link if isinstance(link, DirectLink) else None
        self._segmenter = Segmenter(mode == "packet", equal_sizes)
        self._turn_segmenter = Segmenter(mode == "packet", equal_sizes)
        self._header = ffi.new("uint8_t[]", lib.SN_MOST_HEADER)
        self.rx = RxParser(mac, self.offloads, self._counters)

    @property
    def counters(self) -> NicCounters:
        """What was counted so far."""
        add_counts(self._counters, self.turn.counts, "nic_")
        return self._counters

    @property
    def frames_received(self) -> int:
        """`counters.rx_frames`, without adding up the others."""
        return self._counters.rx_frames + int(self.turn.counts.nic_rx_frames)

    # --- egress

    def lend(self) -> None:
        """Have its turn cut and parse in memory of this NIC."""
        self.rx.reserve(MAX_FRAMES)
        self._turn_segmenter.lend(self.turn, _OUT_BYTES)
        self.turn.batch.payloads, self.turn.batch.runs = self.rx.payloads, self.rx.runs

    def last_cut(self) -> Frames:
        """Return a copy of the frames that its turn has cut last."""
        return self._turn_segmenter.copy(self.turn.tx.packet_id)

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        """Send a segment (see `Transmitter`). Raises ValueError for a segment that no TCP makes, e.g. cut inside a
        word."""
        if segment.options is not None and segment.options.remembered:
            segment.options = replace(segment.options, codecs=self.codecs)
        flow: FlowSlots | None = segment.flow
        state: NicFlow | None = None if flow is None else flow.nic or attach(flow)
        payload = segment.payload
        choice, adaptive = PLAIN, None
        if payload and self.offloads.bitmap >> (segment.tos >> 2) & 1:
            choice, adaptive = self.choose_codec(segment.tos, segment.codec, agreed(flow, self.codecs), state)
        header = pack_headers(segment, destination, self.mac, self.turn.identification)
        max_payload = (segment.path_mtu or self.link.mtu) - 40 - (len(header) - HEADER_BYTES)
        block_offset, again = segment.block_offset, segment.again
        return self.emit(header, payload, max_payload, state, choice, adaptive, block_offset, max_frames, now, again)

    def emit(
        self,
        header: bytes,
        payload: memoryview,
        max_payload: int,
        flow: NicFlow | None,
        choice: CodecChoice,
        adaptive: AdaptiveCodec | None,
        block_offset: int,
        max_frames: int,
        now: float,
        again: bool = False,
    ) -> Transmitted:
        """Send a segment of a flow behind this header with `sn_cut`. Raises ValueError as `transmit`.

        `header` is the Ethernet, IPv4 and TCP header of the first frame, `max_payload` the TCP payload bytes per frame.
        `flow` counts, unless this was sent before (`again`); `choice` and `adaptive` come from `choose_codec`.
        `block_offset` is the offset of the payload in its coding block.
        """
        source = ffi.from_buffer("uint8_t[]", payload)
        where = (flow, again, header[:_ADDRESS], now)
        return self._emit(
            header, len(header), source, len(payload), max_payload, choice, adaptive, block_offset, max_frames, *where
        )

    def transmit_output(self, flow: Any, out: CData, destination: bytes, now: float) -> Transmitted:
        """Send what TCP's fast path has chosen (see `OutputTransmitter`)."""
        state: NicFlow = flow.nic or attach(flow)
        choice, adaptive = PLAIN, None
        length, tos = out.end - out.start, out.tos
        if length and self.offloads.bitmap >> (tos >> 2) & 1:
            codec = flow.snd.buffer.tag_numbered(out.tag).codec
            choice, adaptive = self.choose_codec(tos, codec, agreed(flow, self.codecs), state)
        header = self._header
        size = lib.sn_flow_header(flow.c, out, destination, self.mac, self.turn.identification, header)
        max_payload = (flow.path_mtu or self.link.mtu) - 40 - (size - HEADER_BYTES)
        where = (state, out.start < flow.snd.snd_nxt, destination, now)
        return self._emit(
            header, size, out.data, length, max_payload, choice, adaptive, out.block_offset, out.frames, *where
        )

    def _emit(
        self,
        header: bytes | CData,
        header_length: int,
        source: CData,
        length: int,
        max_payload: int,
        choice: CodecChoice,
        adaptive: AdaptiveCodec | None,
        block_offset: int,
        max_frames: int,
        flow: NicFlow | None,
        again: bool,
        destination: bytes,
        now: float,
    ) -> Transmitted:
        if max_frames > MAX_FRAMES:
            max_frames = MAX_FRAMES
        link = None if destination == self.mac else self._direct_link
        path = None if link is None else link.direct_path(destination)
        raw = adaptive is not None and adaptive.raw
        if adaptive is not None:
            self.codec_timer.start()
        result = self._segmenter.cut(
            header, header_length, source, length, max_payload, choice, raw, block_offset, max_frames, path is None
        )
        if adaptive is not None:
            codec_s = self.codec_timer.stop(result.consumed, adaptive.raw)
            adaptive.sent(now, result.consumed, result.frame_bytes, codec_s, result.frames >= max_frames)
        offloaded = choice.number >= 0
        return self._send(result, flow, again, offloaded, destination, path, now)

    def choose_codec(
        self, tos: int, codec: str | None, peer_codecs: int | None, flow: AdaptiveSlot | None
    ) -> tuple[CodecChoice, AdaptiveCodec | None]:
        """Return the codec for a segment whose ToS selects an offload, and what decides about applying it.

        `peer_codecs` are those that both ends have. PLAIN if the peer does not decode, RAW if it lacks the codec.
        """
        if flow is None or peer_codecs is None:
            return PLAIN, None
        choice = self.offloads.codec_of(tos, codec)
        if not peer_codecs >> choice.number & 1:
            return RAW, None
        if choice.adaptive is None:
            return choice, None
        if flow.adaptive is None or flow.adaptive.codec != choice.adaptive:
            flow.adaptive = AdaptiveCodec(choice.adaptive, self._counters, self._link_rate_bps)
        return choice, flow.adaptive

    def _send(
        self,
        result: CData,
        flow: NicFlow | None,
        again: bool,
        offloaded: bool,
        destination: bytes,
        path: UdpPath | None,
        now: float,
    ) -> Transmitted:
        """Send and count the frames of the latest cut."""
        counters = self._counters
        taken, frames, wire_bytes = result.consumed, result.frames, result.frame_bytes
        number = self.turn.packet_id = self.turn.packet_id + 1
        self.turn.identification = (self.turn.identification + frames) & 0xFFFF
        counters.tx_segments += 1
        counters.tx_bytes += taken
        counters.tx_frames += frames
        counters.tx_wire_bytes += wire_bytes
        if flow is not None:
            flow.wire_bytes_sent += wire_bytes
            if offloaded:
                encoded = result.payload_bytes
                if not again:
                    flow.offload_original_bytes_sent += taken
                    flow.offload_encoded_bytes_sent += encoded
                counters.tx_offload_frames += frames
                counters.tx_offload_original_bytes += taken
                counters.tx_offload_encoded_bytes += encoded
                counters.tx_offload_raw_frames += result.raw_frames
        if destination == self.mac:
            self.loop_back(self._segmenter.take(number))
            counters.loopback_frames += frames
            counters.loopback_wire_bytes += wire_bytes
        elif path is None:
            self.link.send(self._segmenter.take(number), now)
        else:
            self._send_directly(path, frames, wire_bytes, now)
        return Transmitted(taken, frames, wire_bytes, number)

    def _send_directly(self, path: UdpPath, frames: int, wire_bytes: int, now: float) -> None:
        """Pass the frames of the latest cut to the kernel, and those that it does not accept to the link."""
        link = self._direct_link
        assert link is not None
        accepted = self._segmenter.send_udp(path)
        if accepted == frames:
            link.on_direct_sent(frames, wire_bytes)
            return
        batch = self._segmenter.copy(self.turn.packet_id)
        if accepted > 0:
            link.on_direct_sent(accepted, batch.select(slice(accepted)).nbytes)
            batch = batch.select(slice(accepted, None))
        self.link.send(batch, now)  # again, to learn why it was not accepted

    def loop_back(self, frames: Frames) -> None:
        """Have frames to this NIC itself, which were sent and counted, received next."""
        self.loopback.append(frames)
        self.turn.has_frames = True

    def send_frame(self, frame: bytes, now: float) -> None:
        """Send a frame that is not TCP as it is."""
        if not _ETHERNET_HEADER <= len(frame) <= self.link.mtu + _ETHERNET_HEADER:
            self._counters.tx_drop_length += 1
            return
        self._counters.tx_other_frames += 1
        self._counters.tx_frames += 1
        self._counters.tx_wire_bytes += len(frame)
        self.link.send(Frames.of([frame]), now)

    # --- ingress

    def receive_run(self, index: int, loopback: bool) -> Iterator[Segment | bytes]:
        """Turn a run of the batch in `rx` into one segment or, exceptionally, several; other frames are returned as
        received. Each item is made when those before it have been processed."""
        run = self.rx.run(index)
        kind = run[KIND]
        if kind == 0:
            yield from self._receive_tcp(run, loopback)
        elif kind == OTHER:
            self._counters.rx_other_frames += 1
            yield self.rx.frame(run[0])
        else:
            self.rx.drop(kind)

    def _receive_tcp(self, run: Run, loopback: bool) -> Iterable[Segment]:
        (first, count, src, dst, seq, ack, ts_value, ts_echo, length, original, options_offset, sack_offset) = run[:12]
        (options_length, sport, dport, window, _, flags, tos, has_timestamps, sack_blocks) = run[12:]
        if dst != self.ip or (src == dst) != loopback:
            self._counters.rx_drop_ip_address += count
            return ()
        flow = self.lookup((src, sport, dport))
        state: NicFlow | None = None
        if flow is not None:
            state = flow.nic or attach(flow)
            state.wire_bytes_received += length + count * (HEADER_BYTES + options_length)
        if length == 0:
            payload: memoryview | None = _NOTHING
        elif not self.offloads.bitmap >> (tos >> 2) & 1:
            payload = self.rx.gather(first, count, length)
        elif state is not None and (peer_codecs := agreed(flow, self.codecs)) is not None:
            payload = self.rx.decode_payload(first, count, length, original, peer_codecs, state)
        else:
            payload = None  # parsed as if there were payload headers: only each frame's own length is right
            state = None
        segment = Segment(src, dst, sport, dport, seq, ack, flags, window, tos, flow=flow, frames=count)
        if has_timestamps:
            segment.timestamps = (ts_value, ts_echo)
        if sack_blocks:
            segment.sacks = unpack_sacks(self.rx.read(sack_offset, 8 * sack_blocks))
        if flags & _SYN:
            segment.options = parse_options(self.rx.read(options_offset, options_length))
        if payload is None:
            return self._receive_singly(first, segment, state)
        self.count_received(len(payload))
        segment.payload = payload
        return (segment,)

    def _receive_singly(self, first: int, whole: Segment, state: NicFlow | None) -> Iterator[Segment]:
        """Turn a run into one segment per frame: of an untouched stream (no state), or without malformed frames."""
        seq = whole.seq
        peer_codecs = agreed(whole.flow, self.codecs) or 0
        for index in range(first, first + whole.frames):
            payload_ref = self.rx.payloads[index]
            length, original = payload_ref.length, payload_ref.original
            if state is None:
                payload: memoryview | None = self.rx.gather(index, 1, length)
            else:
                payload = self.rx.decode_payload(index, 1, length, original, peer_codecs, state)
            if payload is None:
                self._counters.rx_drop_offload += 1
            else:
                flags = whole.flags if index == first + whole.frames - 1 else whole.flags & ~_ENDING
                self.count_received(len(payload))
                yield replace(whole, seq=seq, flags=flags, payload=payload, frames=1)
            seq = (seq + original) & 0xFFFFFFFF

    def count_received(self, size: int) -> None:
        """Count a segment that is passed up."""
        self._counters.rx_segments += 1
        self._counters.rx_bytes += size


def _no_flow(key: tuple[int, int, int]) -> FlowSlots | None:  # noqa: ARG001
    """The table of a NIC without TCP."""
    return None


_COUNTED = [name for name, _ in ffi.typeof("sn_turn_counts").fields]


def add_counts(counters: object, counts: CData, prefix: str) -> None:
    """Move what a turn has counted under names with this prefix to counters."""
    for field in _COUNTED:
        if field.startswith(prefix) and (count := getattr(counts, field)):
            name = field.removeprefix(prefix)
            setattr(counters, name, getattr(counters, name) + count)
            setattr(counts, field, 0)
