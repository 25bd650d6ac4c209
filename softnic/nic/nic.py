"""The NIC: segments of the local TCP become frames on a link, and frames become segments.

Down: classify by the segment's ToS, choose the codec that both ends have, then one C call cuts, encodes and sums the
whole super-segment. Up: each run of frames that came (arrivals.py) becomes a segment, as a rule. The NIC keeps no
payload: what cannot leave at once was not taken. Frames to its own address turn round here, encoded as they are, and
never reach the link; no others may say that they come from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic._native import ffi, lib
from softnic.link.base import Link
from softnic.nic.adaptive_codec import Auto, CodecTimer, FixedSpeed
from softnic.nic.counters import NicCounters
from softnic.nic.flows import Flow, Flows, room_of
from softnic.nic.offload import DEFAULT_OFFLOADS, PLAIN, RAW, Engine, OffloadTable
from softnic.nic.rx import KIND, OTHER, Arrivals, Run
from softnic.packet.frames import HEADROOM, Frames
from softnic.packet.headers import HEADER_BYTES, pack_headers, parse_options, unpack_sacks
from softnic.packet.segment import Flags, Segment, Transmitted

Mode = Literal["fill", "packet"]
CData = Any
"""What cffi makes of a buffer."""

MAX_FRAMES = 4096
"""Frames of one segment; a longer one is taken in part."""
OFFLOADED_BYTES = 1 << 20
"""Frame bytes of one offloaded segment; a longer one is taken in part."""

_ETHERNET_HEADER = 14
_SYN = int(Flags.SYN)
_ENDING = int(Flags.PSH | Flags.FIN)
_NOTHING = memoryview(b"")
_PlanFields = tuple[int, int, int, int, bool, int, int]
"""Of an `sn_cut_plan`: header length, room, codec, parameter, raw, phase, frames at most."""
_FIRST_OFFSET = np.array([HEADROOM], np.uint32)
_FIRST_OFFSET.flags.writeable = False
"""Offsets of a batch of one frame."""


Place = Callable[[int, int], "npt.NDArray[np.uint8] | None"]
"""Told a sequence number and how many bytes follow it, gives the memory that these are to be decoded into. What is in
it afterwards counts only if TCP takes the segment. None: anywhere."""


def _space(length: int, room: int, overhead: int, max_frames: int, offloaded: bool) -> int:
    """Bytes to set aside for the frames of a segment of `length` bytes. What an offloaded one comes to is known only
    afterwards; where this is too little, its rest is another segment."""
    frames = -(-length // room) or 1
    if offloaded:
        return min(OFFLOADED_BYTES, min(2 * frames + 1, max_frames) * (overhead + room))
    frames = min(frames, max_frames)
    return frames * overhead + min(length, frames * room)


class Nic:
    """A NIC with one MAC and one IPv4 address on one link. It is TCP's `Transmitter`.

    `mode`: "fill" compresses, then cuts (fewer packets); "packet" cuts to the MSS, then compresses (the same number
    of packets, smaller). `equal_sizes` pads the frames of a compressed segment to one size, for links that send a
    batch of equal frames more cheaply. `codec_timer` says what the codec costs, for codec = "auto"; without one it
    costs nothing, and auto always compresses. `link_rate_bps` is that of the link, where it is known.
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
            raise ValueError(f"{mode!r} is no mode: fill and packet are")
        self.link = link
        self.mac = mac
        self.ip = ip
        self.mode: Mode = mode
        self.offloads = OffloadTable(offloads)
        self.flows = Flows(codecs.BUILT_IN)
        self.places: dict[tuple[int, int, int], Place] = {}
        """By the `Key` of a flow: who knows where its bytes are wanted."""
        self._turned: deque[Frames] = deque()
        """Frames to this NIC itself, which come in next. No more than its TCP's windows allow."""
        self.counters = NicCounters()
        self._link_rate_bps = link_rate_bps
        self._codec_timer = codec_timer or FixedSpeed(float("inf"))
        self._identification = 0
        self._packet_id = 0
        self._plan = ffi.new("sn_cut_plan *")
        self._plan.packet_mode = mode == "packet"
        self._plan.equal_sizes = equal_sizes
        self._planned: _PlanFields = (0, 0, 0, 0, False, 0, 0)
        self._result = ffi.new("sn_cut_result *")
        self._offsets = np.empty(MAX_FRAMES, np.uint32)
        self._lengths = np.empty(MAX_FRAMES, np.uint32)
        self._c_offsets = ffi.from_buffer("uint32_t[]", self._offsets)
        self._c_lengths = ffi.from_buffer("uint32_t[]", self._lengths)
        self.arrivals = Arrivals(mac, self.offloads, self.counters)

    # Down.

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        """See `Transmitter`. Raises ValueError for a segment that no TCP makes: with a phase inside a word, say."""
        if segment.options is not None:
            segment.options = self.flows.sending_syn(segment, segment.options)
        flow = self.flows.get((segment.dst, segment.dport, segment.sport))
        payload = segment.payload
        engine, auto = PLAIN, None
        if payload and self.offloads.bitmap >> (segment.tos >> 2) & 1:
            engine, auto = self.engine(segment.tos, segment.codec, flow)
        header = pack_headers(segment, destination, self.mac, self._identification)
        room = room_of(flow, segment.path_mtu or self.link.mtu, len(header))
        return self.emit(header, payload, room, flow, engine, auto, segment.block_offset, max_frames, now)

    def emit(
        self,
        header: bytes,
        payload: memoryview,
        room: int,
        flow: Flow | None,
        engine: Engine,
        auto: Auto | None,
        phase: int,
        max_frames: int,
        now: float,
    ) -> Transmitted:
        """Sends a segment of a flow behind this header, `room` TCP payload bytes in a frame, by this engine (`sn_cut`).
        Raises ValueError as `transmit`."""
        length = len(payload)
        if max_frames > MAX_FRAMES:
            max_frames = MAX_FRAMES
        raw = auto is not None and auto.raw
        plan = (len(header), room, engine.number, engine.parameter, raw, phase, max_frames)
        if plan != self._planned:
            self._make_plan(plan)
        size = _space(length, room, HEADROOM + len(header), max_frames, engine.number >= 0)
        data = np.empty(size, np.uint8)
        if auto is not None:
            self._codec_timer.start()
        self._cut(header, payload, ffi.from_buffer("uint8_t[]", data), size)
        if auto is not None:
            self._tell(auto, now, max_frames)
        if engine.number >= 0:
            data.resize(self._result.frame_bytes + self._result.frames * HEADROOM, refcheck=False)
        return self._send(data, flow, engine.number >= 0, header.startswith(self.mac), now)

    def _make_plan(self, fields: _PlanFields) -> None:
        """What `_cut` goes by; the next segment's is often the same."""
        self._planned = fields
        plan = self._plan
        (
            plan.header_length,
            plan.max_payload,
            plan.codec,
            plan.parameter,
            plan.raw,
            plan.block_offset,
            plan.max_frames,
        ) = fields

    def engine(self, tos: int, codec: str | None, flow: Flow | None) -> tuple[Engine, Auto | None]:
        """The codec for a segment whose ToS selects an offload: none, if the peer could not undo it. And who decides
        whether to apply it, where that is to be decided."""
        if flow is None or flow.codecs is None:
            return PLAIN, None
        engine = self.offloads.codec_of(tos, codec)
        if not flow.codecs >> engine.number & 1:
            return RAW, None
        if engine.auto is None:
            return engine, None
        if flow.auto is None or flow.auto.codec != engine.auto:
            flow.auto = Auto(engine.auto, self.counters, self._link_rate_bps)
        return engine, flow.auto

    def _tell(self, auto: Auto, now: float, max_frames: int) -> None:
        """What was cut just now took so long and came to so much."""
        result = self._result
        codec_s = self._codec_timer.stop(result.consumed, auto.raw)
        auto.sent(now, result.consumed, result.frame_bytes, codec_s, result.frames >= max_frames)

    def _cut(self, header: bytes, payload: memoryview, out: CData, capacity: int) -> None:
        source = ffi.from_buffer("uint8_t[]", payload)
        arrays = (self._c_offsets, self._c_lengths, self._result)
        if lib.sn_cut(self._plan, header, source, len(payload), out, capacity, *arrays):
            raise ValueError(f"a segment with {self._plan.header_length} bytes of headers cannot be cut as asked")

    def _send(
        self, data: npt.NDArray[np.uint8], flow: Flow | None, offloaded: bool, turns: bool, now: float
    ) -> Transmitted:
        result, counters = self._result, self.counters
        taken, frames, wire_bytes = result.consumed, result.frames, result.frame_bytes
        self._packet_id += 1
        self._identification = (self._identification + frames) & 0xFFFF
        counters.tx_segments += 1
        counters.tx_bytes += taken
        counters.tx_frames += frames
        counters.tx_wire_bytes += wire_bytes
        if flow is not None:
            flow.wire_bytes_sent += wire_bytes
            if offloaded:
                encoded = result.payload_bytes
                flow.offload_original_bytes_sent += taken
                flow.offload_encoded_bytes_sent += encoded
                counters.tx_offload_frames += frames
                counters.tx_offload_original_bytes += taken
                counters.tx_offload_encoded_bytes += encoded
                counters.tx_offload_raw_frames += result.raw_frames
        offsets = _FIRST_OFFSET if frames == 1 else self._offsets[:frames].copy()
        sent = Frames(data, offsets, self._lengths[:frames].copy(), self._packet_id, wire_bytes)
        if turns:
            self._turned.append(sent)
            counters.loopback_frames += frames
            counters.loopback_wire_bytes += wire_bytes
        else:
            self.link.send(sent, now)
        return Transmitted(taken, frames, wire_bytes, self._packet_id)

    def send_frame(self, frame: bytes, now: float) -> None:
        """Sends a frame that is not TCP as it is."""
        if not _ETHERNET_HEADER <= len(frame) <= self.link.mtu + _ETHERNET_HEADER:
            self.counters.tx_drop_length += 1
            return
        self.counters.tx_other_frames += 1
        self.counters.tx_frames += 1
        self.counters.tx_wire_bytes += len(frame)
        self.link.send(Frames.of([frame]), now)

    # Up.

    def receive(self, now: float) -> list[Segment | bytes] | None:
        """The next batch that turned round or that the link has: segments, and other frames as they came. None: nothing
        waits."""
        turned = bool(self._turned)
        frames = self._turned.popleft() if turned else self.link.receive(now)
        if frames is None:
            return None
        received: list[Segment | bytes] = []
        for run in self.arrivals.parse(frames):
            kind = run[KIND]
            if kind == 0:
                self._receive_run(run, turned, received)
            elif kind == OTHER:
                self.counters.rx_other_frames += 1
                received.append(frames[run[0]])
            else:
                self.arrivals.drop(kind)
        return received

    @property
    def waiting(self) -> bool:
        """There is something to `receive` that the link does not know of."""
        return bool(self._turned)

    def _receive_run(self, run: Run, turned: bool, received: list[Segment | bytes]) -> None:
        """Turns a run of TCP frames into one segment, as a rule."""
        (first, count, src, dst, seq, ack, ts_value, ts_echo, length, original, options_offset, sack_offset) = run[:12]
        (options_length, sport, dport, window, _, flags, tos, has_timestamps, sack_blocks) = run[12:]
        if dst != self.ip or (src == dst) != turned:
            self.counters.rx_drop_ip_address += count
            return
        segment = Segment(src, dst, sport, dport, seq, ack, flags, window, tos, frames=count)
        if has_timestamps:
            segment.timestamps = (ts_value, ts_echo)
        if sack_blocks:
            segment.sacks = unpack_sacks(self.arrivals.read(sack_offset, 8 * sack_blocks))
        if flags & _SYN:
            segment.options = parse_options(self.arrivals.read(options_offset, options_length))
            self.flows.received_syn(segment, segment.options)
        flow = self.flows.get((src, sport, dport))
        if flow is not None:
            flow.wire_bytes_received += length + count * (HEADER_BYTES + options_length)
        if length == 0:
            payload: memoryview | None = _NOTHING
        elif not self.offloads.bitmap >> (tos >> 2) & 1:
            payload = self.arrivals.gather(first, count, length, self._place(src, sport, dport, seq, length))
        elif flow is not None and flow.codecs is not None:
            place = self._place(src, sport, dport, seq, original)
            payload = self.arrivals.restore(first, count, length, original, flow, place)
        else:
            payload = None  # joined as if there were payload headers: only its pieces are right
            flow = None
        if payload is None:
            self._receive_pieces(first, segment, flow, received)
            return
        segment.payload = payload
        self.count_received(len(payload))
        received.append(segment)

    def _receive_pieces(self, first: int, whole: Segment, flow: Flow | None, received: list[Segment | bytes]) -> None:
        """A run frame by frame: of an untouched stream (no flow), or to leave out what is malformed."""
        seq = whole.seq
        for index in range(first, first + whole.frames):
            piece = self.arrivals.pieces[index]
            length, original = piece.length, piece.original
            if flow is None:
                payload: memoryview | None = self.arrivals.gather(index, 1, length)
            else:
                payload = self.arrivals.restore(index, 1, length, original, flow)
            if payload is None:
                self.counters.rx_drop_offload += 1
            else:
                flags = whole.flags if index == first + whole.frames - 1 else whole.flags & ~_ENDING
                received.append(replace(whole, seq=seq, flags=flags, payload=payload, frames=1))
                self.count_received(len(payload))
            seq = (seq + original) & 0xFFFFFFFF

    def count_received(self, size: int) -> None:
        """The host side gets a segment with so many bytes."""
        self.counters.rx_segments += 1
        self.counters.rx_bytes += size

    def _place(self, src: int, sport: int, dport: int, seq: int, size: int) -> npt.NDArray[np.uint8] | None:
        """Memory for the bytes of a run where their reader wants them. None: anywhere."""
        if not self.places:
            return None
        place = self.places.get((src, sport, dport))
        return place(seq, size) if place is not None else None
