"""Seeds of the targets of native/: inputs in each target's own form, made by the code that they are to break."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator

import numpy as np

from softnic import codecs
from softnic.codecs.payload import PayloadHeader
from softnic.ipc import control
from softnic.packet.segment import Flags
from tests.fuzz.targets import Target
from tests.nic.harness import IP_A, IP_B, MAC_A, MAC_B, TOS, cut, floats, header

_PARAMETERS = {
    "raw": (0,),
    "inceptionn": (1, 10, 23),
    "bounded": (1, 10, 23),
    "bfp": (3, 7, 15),
    "truncate": (8, 13, 32),
    "rht": (3, 4, 6),
    "exact": (16, 32),
    "mx": (1, 2, 3, 4),
}


def words(count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Floats of all sizes, silence, and what is no number."""
    data = floats(count) * np.float32(2.0) ** (np.arange(count, dtype=np.float32) % 24 - 8)
    data[::7] = 0
    data[3::11] = np.inf
    data[5::13] = np.nan
    return data.astype(np.float32)


def _decode(name: str) -> Iterator[bytes]:
    lowest = min(_PARAMETERS[name])
    number = list(_PARAMETERS).index(name)
    for parameter in _PARAMETERS[name]:
        codec = codecs.from_number(number, parameter)
        for count in (0, 1, 16, 65, 150):
            yield struct.pack("<BH", parameter - lowest, count) + codec.encode(words(count))
        yield struct.pack("<BH", parameter - lowest, 600) + codec.encode(np.zeros(600, np.float32))


def _encode() -> Iterator[bytes]:
    for number in range(len(_PARAMETERS)):
        for simd, (room, count) in enumerate(((0, 10), (60, 16), (500, 150), (4000, 300))):
            yield struct.pack("<BBBHBB", number, 7, 15, room, 0, simd) + words(count).tobytes()
        yield struct.pack("<BBBHBB", number, 7, 15, 4000, 0, 0x81) + words(5).tobytes()
        small = np.float32(0.005)  # a little more than what bounded of this parameter silences
        yield struct.pack("<BBBHBB", number, 7, 15, 4000, 0, 0x81) + small.tobytes()


def _tagged(codec: str, count: int, tail: bytes = b"") -> bytes:
    chosen = codecs.get(codec)
    body = chosen.encode(words(count)) + tail
    return PayloadHeader(chosen, 4 * count + len(tail), len(body)).pack() + body


def payloads() -> list[bytes]:
    """Whole payloads, of all codecs and kinds."""
    raw = PayloadHeader(codecs.get("bounded:10"), 71, 71, raw=True).pack() + bytes(71)
    padded = PayloadHeader(codecs.get("bounded:10"), 71, 71, raw=True, padded=True).pack() + bytes(80)
    kinds = ("inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:32", "mx:e2m3")
    return [raw, padded, *(_tagged(kind, 40) for kind in kinds), *(_tagged(kind, 65, b"xyz") for kind in kinds)]


def _payload() -> Iterator[bytes]:
    pieces = [struct.pack("<HB", len(payload), 1) + payload for payload in payloads()]
    yield from (b"\x1f\x00" + piece for piece in pieces)
    yield b"\x1f\x00" + b"".join(pieces)


def _frame(payload: bytes, tos: int = 0) -> bytes:
    done = cut(header(tos=tos), payload, max_payload=1400, codec=-1, parameter=0)
    assert done is not None
    return done[0][0]


def _with_options(options: bytes) -> bytes:
    """A SYN with these options, its checksums left to the target."""
    bare = header(Flags.SYN, stamped=False)
    return bare[:46] + bytes([(20 + len(options)) // 4 << 4]) + bare[47:54] + options


def other_frames() -> list[bytes]:
    """ARP and an ICMP echo, as another node sends them."""
    arp = struct.pack("!HHBBH6sI6sI", 1, 0x0800, 6, 4, 1, MAC_A, IP_A, bytes(6), IP_B)
    echo = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + b"softnic!"
    ip = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(echo), 0, 0, 64, 1, 0, IP_A, IP_B)
    return [b"\xff" * 6 + MAC_A + b"\x08\x06" + arp, MAC_B + MAC_A + b"\x08\x00" + ip + echo]


def frames() -> list[list[bytes]]:
    """Batches of frames as a link brings them."""
    syn = bytes.fromhex("020405b4 0402 080a0000000100000000 030307 fe09534e494301001f 01010101")
    plain = cut(
        header(flags=Flags.ACK | Flags.PSH | Flags.FIN), bytes(range(250)) * 2, max_payload=100, codec=-1, parameter=0
    )
    tagged = cut(header(tos=TOS), words(500).tobytes() + b"xy", max_payload=300, codec=2, parameter=10)
    assert plain is not None
    assert tagged is not None
    single = [_with_options(syn), _frame(b"abc"), *(_frame(payload, TOS) for payload in payloads())]
    return [plain[0], tagged[0], *([one] for one in (*single, *other_frames()))]


def _frames() -> Iterator[bytes]:
    for batch in frames():
        packed = b"".join(struct.pack("<H", len(frame)) + frame for frame in batch)
        yield from (b"\x00" + packed, b"\x01" + packed)


def _cut() -> Iterator[bytes]:
    for codec in range(1 + len(_PARAMETERS)):
        for flags in range(8):
            plan = struct.pack("<BBBHBBB", 3, codec, 10, 200 + 40 * flags, flags, 30, flags)
            yield plan + struct.pack("<HB", 9000, 1) + words(300).tobytes() + b"xyz"


def _vxlan() -> Iterator[bytes]:
    datagram = bytes([8, 0, 0, 0, 0, 0, 7, 0]) + _frame(b"abc")
    one = struct.pack("<BiH", 0, 0, len(datagram)) + datagram
    joined = struct.pack("<BiH", 2, len(datagram), 3 * len(datagram)) + datagram * 3
    yield from (
        one,
        joined,
        one * 4,
        b"\x80" + one[1:],
        b"\x82" + joined[1:],
        one + joined + struct.pack("<BiH", 5, 0, 0) + one,
    )


def _encrypted() -> Iterator[bytes]:
    """Datagrams of two sessions, in order, again, and late; hellos; plain ones."""
    datagrams = []
    for session, counter in ((0, 5), (0, 6), (0, 6), (1, 0), (0, 9000), (0, 7), (1, 1 << 40)):
        body = bytes(8) + counter.to_bytes(8, "big") + bytes(60) + b"\x01" * 16
        datagrams.append(struct.pack("<H", 1 << 15 | session << 14 | len(body)) + body)
    hello = b"\x10" + bytes(87)
    datagrams += [struct.pack("<H", len(data)) + data for data in (hello, b"\x08" + bytes(50), b"\x11" + bytes(40))]
    for verdict in range(3):
        yield bytes([verdict]) + struct.pack("<Q", 5) + b"".join(datagrams)


def _device() -> Iterator[bytes]:
    for batch in frames():
        packed = b"".join(struct.pack("<H", 10 + len(frame)) + bytes(10) + frame for frame in batch[:4])
        yield from (struct.pack("<H", size) + packed for size in (0, 16, 1448))


def _flow() -> Iterator[bytes]:
    """Streams in both directions, with answers, tags, zero-copy bytes, losses and silence."""
    send, write, wait, idle, lend = b"\x01\x20", b"\x02\x00\x20", b"\x03\x40\x00", b"\x04\x00\x02", b"\x05\x00\x10"
    acknowledge, data, both = b"\x00\x02", b"\x00\x40\x00\x04", b"\x00\x42\x40\x00"
    read, sacked, again = b"\x0a\xff", b"\x00\x80\x02\x01\x00\x04\x00\x08", b"\x08\x00\x00\x20"
    for options in (0x10, 0x15, 0x20, 0x27, 0x2F, 0x05):
        start = bytes([options])
        yield start + (write + send * 3 + wait + acknowledge) * 20
        yield start + (data + send + read + wait) * 20
        yield start + (write + send + both + wait + read + send) * 15
        tagged = b"\x06\x11" + (write + lend + send * 4 + wait + acknowledge) * 10
        yield start + tagged + b"\x06\x02" + (write + send) * 5
        yield start + (write + send * 4 + wait + sacked + again + wait + acknowledge + idle) * 8
        full = b"\x02\xff\xff" + b"\x01\x3f\x00"
        yield start + (full + wait + acknowledge) * 20 + (full + wait * 5 + acknowledge) * 30
        yield start + full + wait + again + (full + wait + acknowledge) * 40


def _turn() -> Iterator[bytes]:
    """Streams to the peer and of the node to itself, answers, blocks and headers of collectives; sealed or not."""
    turn, write, near, read = b"\x02\x40\x00\xff", b"\x04\x00\x20", b"\x10\x00\x20", b"\x11\x00\x40"
    acknowledge = b"\x00\x00\x00\x00"
    data, block = b"\x00\x00\x00\x40" + bytes(range(64)), b"\x00\x00\x01\x40" + bytes(range(64))
    header = b"\x00\x00\x02\x10" + bytes([12, 0, 0, 0, 0x9A, 1, 1, 9]) + bytes(8)
    hello, forged = b"\x01\x50" + bytes([72]) + bytes(79), b"\x01\x33" + bytes(51)
    for options in (0x10, 0x15, 0x20, 0x05, 0x90, 0x95):
        start = bytes([options])
        yield start + (write + turn + acknowledge + turn) * 20
        yield start + (near + turn * 2 + read) * 20
        yield start + (write + hello + acknowledge + turn + forged + data + turn) * 8
        yield start + b"\x06\x03\x01" + (near + turn * 2 + read) * 10 + b"\x06\x03\x00" + (near + turn * 2 + read) * 5
        yield start + (data + turn + b"\x05\x00\x40" + write + turn) * 20
        for kind in (0x40, 0x41, 0x42, 0x5A, 0x60, 0x62):
            post = b"\x07" + bytes([kind]) + b"\x00\x01\x00\x01"
            yield start + (post + turn + block * 5 + turn + acknowledge + turn) * 6
        yield start + (b"\x07\x01\x00\x01\x40\x00\x08\x09" + turn + header + turn + block * 2 + turn) * 4


def _replies() -> Iterator[bytes]:
    """What a NIC answers to the requests of the preloaded library."""
    state = control.StreamInfo(7, "ESTABLISHED", ("10.77.0.1", 80), ("10.77.0.2", 81), srtt=1.5e-05, mss=1448)
    for reply in (
        control.Opened(1 << 48, "0.0.0.0", 0),
        control.Failed(111, 'refused: "10.77.0.2"'),
        control.OptionValue("bounded:10"),
        control.OptionValue(1),
        control.Resolved("node1", "10.77.0.2"),
        state,
    ):
        yield control.encode(reply)
    yield b'{"type":"StreamInfo","state":"\\","local":["10.77.0.1"],"peer":[[{}]],"srtt":9e99'


def _calls() -> Iterator[bytes]:
    """Each call of the preloaded library, with a reply of each kind."""
    addresses = (
        struct.pack("<H2s4s8x", socket.AF_INET, b"\0P", bytes([10, 77, 0, 1])),
        struct.pack("<H2s4x12s4s4x", socket.AF_INET6, b"\0P", bytes(10) + b"\xff\xff", bytes([10, 77, 0, 1])),
    )
    for reply in _replies():
        for which in range(12):
            yield bytes([0, 1, which, 104]) + bytes(104) + reply
            yield bytes([1, which % 2, which, 8]) + struct.pack("ii", 1, 5) + reply
        for call in range(4):
            for each in addresses:
                yield bytes([2 + call, call % 2, len(each)]) + each + b"\x20" + reply
        yield bytes([7, 0, 0, 0, 5]) + b"node1" + reply
        yield bytes([8, 0, 0, 0, 40]) + bytes(40) + reply
    for name in ("node1", "n" * 1100):  # spaces that its names just fill, or just do not
        reply = control.encode(control.Resolved(name, "10.77.0.2"))
        for size in range(4, 16):
            yield bytes([5, 0, len(addresses[0])]) + addresses[0] + bytes([size]) + reply
            for call in (8, 9):
                yield bytes([call, 0, 10, 77, size]) + bytes(size) + reply
    table = b"5000=bounded:10,6000=bfp:7"
    yield bytes([6, 0]) + struct.pack("<H", 6000) + bytes([len(table)]) + table


_SEEDS = {
    "calls": _calls,
    "cut": _cut,
    "encode": _encode,
    "flow": _flow,
    "frames": _frames,
    "payload": _payload,
    "replies": _replies,
    "encrypted": _encrypted,
    "device": _device,
    "turn": _turn,
    "vxlan": _vxlan,
}


def of(target: Target) -> Iterable[bytes]:
    """Those of one target."""
    return _decode(target.name.removeprefix("decode-")) if target.codec is not None else _SEEDS[target.name]()
