"""Helpers of the NIC's tests: a simple reference parser, calls of the C kernels, two NICs on a network."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic._native import ffi, lib
from softnic.link.memory import MemoryLink, MemoryNetwork
from softnic.nic.flows import DetachedFlow, NicFlow
from softnic.nic.nic import Nic
from softnic.packet.frames import HEADROOM, Frames
from softnic.packet.headers import pack_headers
from softnic.packet.segment import Flags, Options, Segment

IP_A, IP_B = 0x0A4D0001, 0x0A4D0002
MAC_A, MAC_B = bytes.fromhex("02534e4d0001"), bytes.fromhex("02534e4d0002")
TOS = 0x28
DATA = Flags.ACK | Flags.PSH


def checksum(data: bytes) -> int:
    """Returns the RFC 1071 checksum, word by word: 0 over data that includes its own valid checksum."""
    total = 0
    for (word,) in struct.iter_unpack("!H", data + bytes(len(data) % 2)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def repaired(frame: bytes | bytearray) -> bytes:
    """Returns the frame with both checksums corrected."""
    fixed = bytearray(frame)
    length = 4 * (fixed[14] & 15)
    fixed[24:26] = bytes(2)
    fixed[24:26] = checksum(bytes(fixed[14 : 14 + length])).to_bytes(2, "big")
    tcp = 14 + length
    end = 14 + int.from_bytes(fixed[16:18], "big")
    if end >= tcp + 20:
        fixed[tcp + 16 : tcp + 18] = bytes(2)
        pseudo = bytes(fixed[26:34]) + struct.pack("!HH", 6, end - tcp)
        fixed[tcp + 16 : tcp + 18] = checksum(pseudo + bytes(fixed[tcp:end])).to_bytes(2, "big")
    return bytes(fixed)


@dataclass
class Packet:
    """The fields of one TCP frame."""

    tos: int
    identification: int
    seq: int
    ack: int
    flags: int
    options: bytes
    payload: bytes


def take_apart(frame: bytes) -> Packet:
    """Parses a frame and checks every length and checksum."""
    assert frame[12:14] == b"\x08\x00"
    ip = frame[14:]
    assert ip[0] == 0x45
    assert len(ip) == int.from_bytes(ip[2:4], "big")
    assert checksum(ip[:20]) == 0
    tcp = ip[20:]
    assert checksum(ip[12:20] + struct.pack("!HH", 6, len(tcp)) + tcp) == 0
    header = 4 * (tcp[12] >> 4)
    _, _, seq, ack = struct.unpack_from("!HHII", tcp)
    return Packet(ip[1], int.from_bytes(ip[4:6], "big"), seq, ack, tcp[13], tcp[20:header], tcp[header:])


@dataclass
class Payload:
    """An offloaded payload, decoded on its own."""

    raw: bool
    padded: bool
    codec: int
    parameter: int
    original: bytes
    encoded: int


def decode_payload(payload: bytes) -> Payload:
    """Decodes FORMAT.md's payload header and body by a simple reference implementation."""
    first, codec, parameter, tail, original, encoded = struct.unpack_from("!BBbBII", payload)
    assert first >> 4 == 1
    assert tail == original % 4
    body = payload[12 : 12 + encoded]
    raw, padded = bool(first & 1), bool(first & 2)
    assert padded == (len(payload) > 12 + encoded)
    if raw:
        assert encoded == original
        restored = body
    else:
        words = codecs.from_number(codec, parameter).decode(body[: encoded - tail], original // 4)
        restored = words.tobytes() + body[encoded - tail :]
    return Payload(raw, padded, codec, parameter, restored, encoded)


def roundtrip(codec: str, data: bytes) -> bytes:
    """Returns the expected bytes of a tagged range: words after the codec's round trip, the tail unchanged."""
    words = np.frombuffer(data[: len(data) // 4 * 4], np.float32)
    return codecs.get(codec).roundtrip(words).tobytes() + data[len(words) * 4 :]


def header(flags: int = DATA, *, seq: int = 1000, tos: int = 0, stamped: bool = True, identification: int = 0) -> bytes:
    segment = Segment(IP_A, IP_B, 4000, 80, seq, 77, flags, 512, tos, timestamps=(5, 6) if stamped else None)
    return pack_headers(segment, MAC_B, MAC_A, identification)


def cut(
    head: bytes, payload: bytes, *, capacity: int = 1 << 20, max_frames: int = 1000, **plan: Any
) -> tuple[list[bytes], Any] | None:
    """sn_cut: its frames and its result, or None where it refuses. Checks that it stays inside its buffers."""
    guard = 4096
    c_plan = ffi.new("sn_cut_plan *", {"header_length": len(head), "max_frames": max_frames, **plan})
    result = ffi.new("sn_cut_result *")
    out = np.full(capacity + guard, 0xA5, np.uint8)
    offsets, lengths = np.zeros(max_frames, np.uint32), np.zeros(max_frames, np.uint32)
    buffers = [ffi.from_buffer("uint8_t[]", out)]
    arrays = [ffi.from_buffer("uint32_t[]", array) for array in (offsets, lengths)]
    if lib.sn_cut(c_plan, head, payload, len(payload), *buffers, capacity, *arrays, result):
        return None
    assert (out[capacity:] == 0xA5).all()
    ends = np.cumsum(lengths[: result.frames] + HEADROOM)
    assert (offsets[: result.frames] == ends - lengths[: result.frames]).all()
    frames = Frames(out, offsets[: result.frames], lengths[: result.frames])
    assert frames.nbytes == result.frame_bytes
    return list(frames), result


@dataclass
class Run:
    """A run (sn_run) with the payloads of its frames."""

    kind: int
    count: int
    seq: int
    flags: int
    tos: int
    payload_bytes: int
    original_bytes: int
    timestamps: tuple[int, int] | None
    sack_blocks: int
    options: bytes
    payloads: list[bytes]


def parse(frames: Frames, *, mac: bytes = MAC_B, offloads: int = 1 << (TOS >> 2)) -> list[Run]:
    """Calls sn_parse; returns the runs found in the batch, with their payloads."""
    count = len(frames)
    pieces, runs = ffi.new("sn_payload_ref[]", count), ffi.new("sn_run[]", count)
    data = ffi.from_buffer("uint8_t[]", frames.data)
    arrays = [ffi.from_buffer("uint32_t[]", array) for array in (frames.offsets, frames.lengths)]
    found = lib.sn_parse(data, len(data), *arrays, count, mac, offloads, pieces, runs)
    whole = frames.data.tobytes()
    parsed = []
    expected_first = 0
    for run in runs[0:found]:
        assert run.first == expected_first
        expected_first += run.count
        mine = pieces[run.first : run.first + run.count]
        payloads = [whole[piece.offset : piece.offset + piece.length] for piece in mine]
        stamps = (run.ts_value, run.ts_echo) if run.has_timestamps else None
        options = whole[run.options_offset : run.options_offset + run.options_length]
        parsed.append(
            Run(
                *(run.kind, run.count, run.seq, run.flags, run.tos, run.payload_bytes, run.original_bytes),
                *(stamps, run.sack_blocks, options, payloads),
            )
        )
    assert expected_first == count
    return parsed


def receive(nic: Nic, now: float = 0.0) -> list[Segment | bytes] | None:
    """Receive the next batch without a turn: segments, and other frames as they came. None if nothing waits."""
    is_looped = bool(nic.loopback)
    frames = nic.loopback.popleft() if is_looped else nic.link.receive(now)
    if frames is None:
        return None
    return [item for index in range(nic.rx.parse(frames)) for item in nic.receive_run(index, is_looped)]


class Pair:
    """Two NICs on one network."""

    def __init__(
        self, *, offloads: dict[int, str] | None = None, mode: Any = "fill", equal_sizes: bool = False
    ) -> None:
        self.network = MemoryNetwork()
        self.link_a: MemoryLink = self.network.port()
        self.link_b: MemoryLink = self.network.port()
        table = {TOS: "bounded:10"} if offloads is None else offloads
        self.a = Nic(self.link_a, MAC_A, IP_A, table, mode, equal_sizes=equal_sizes)
        self.b = Nic(self.link_b, MAC_B, IP_B, table, mode, equal_sizes=equal_sizes)
        self.flows: dict[Nic, DetachedFlow] = {}
        self.path_mtu = 0

    def state(self, nic: Nic) -> NicFlow:
        """Returns a NIC's state of the connection."""
        state = self.flows[nic].nic
        assert isinstance(state, NicFlow)
        return state

    def handshake(self, *, mss: int = 1460) -> Pair:
        """Sends a SYN from a and a SYN-ACK from b, as their TCPs would."""
        options = Options(mss, 7, True)
        self.flows = {self.a: DetachedFlow(None), self.b: DetachedFlow(None)}
        self.a.lookup = {(IP_B, 80, 4000): self.flows[self.a]}.get
        self.path_mtu = mss + 40 if mss < 1460 else 0
        syn = Segment(IP_A, IP_B, 4000, 80, 999, 0, Flags.SYN, 512, options=options, timestamps=(1, 0))
        syn.flow = self.flows[self.a]
        self.a.transmit(syn, MAC_B, 1, 0.0)
        self.flows[self.b].peer_codecs = self._offer(self.b)
        self.b.lookup = {(IP_A, 4000, 80): self.flows[self.b]}.get
        both = Flags.SYN | Flags.ACK
        answer = Segment(IP_B, IP_A, 80, 4000, 4999, 1000, both, 512, options=options, timestamps=(1, 1))
        answer.flow = self.flows[self.b]
        self.b.transmit(answer, MAC_A, 1, 0.0)
        self.flows[self.a].peer_codecs = self._offer(self.a)
        return self

    def _offer(self, nic: Nic) -> int | None:
        """Returns the codecs offered by the SYN that is queued at a NIC."""
        batch = receive(nic) or []
        assert batch
        assert isinstance(batch[0], Segment)
        assert batch[0].options is not None
        return batch[0].options.codecs

    def segment(self, payload: bytes, *, seq: int = 1000, flags: int = DATA, tos: int = TOS, **more: Any) -> Segment:
        """Returns a data segment from a to b."""
        more = {"timestamps": (5, 6), "flow": self.flows.get(self.a), "path_mtu": self.path_mtu, **more}
        return Segment(IP_A, IP_B, 4000, 80, seq, 5000, flags, 512, tos, payload=memoryview(payload), **more)

    def received(self) -> list[Segment]:
        """Returns all segments queued at b."""
        segments: list[Segment] = []
        while (batch := receive(self.b)) is not None:
            for item in batch:
                assert isinstance(item, Segment)
                segments.append(item)
        return segments


def floats(count: int, *, seed: int = 1, sigma: float = 0.01) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(count) * sigma).astype(np.float32)
