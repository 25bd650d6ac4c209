"""The NIC of a kernel, between a device that sends it anything and a link that brings anything.

Nothing raises; what waits for the link stays bounded; the device gets frames with a whole header before each, and no
more than the NIC counts.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from softnic._native import lib
from softnic.link.memory import MemoryNetwork
from softnic.packet.frames import Frames
from softnic.packet.headers import pack_headers, pack_options
from softnic.packet.segment import Flags, Options, Segment
from softnic.tapnic.device import TapDevice
from softnic.tapnic.nic import TapNic
from tests.fuzz import seeds as native
from tests.fuzz.python._frames import repaired
from tests.fuzz.python._input import Input
from tests.nic.harness import IP_A, IP_B, MAC_A, MAC_B, floats

_VNET: int = lib.SN_TAP_HEADER
_MOST_STEPS = 200


def feed(data: bytes) -> None:
    """Input: steps: from where (1 byte: bit 0 from the link, bit 1 lengths and checksums are made right, bit 2 time
    passes), bytes (2, of which 11 bits count), a packet: from the device with virtio's header before it."""
    given = Input(data)
    network = MemoryNetwork()
    link, others = network.port(), network.port()
    ours, device = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    device.setblocking(False)
    node = TapNic(IP_B, MAC_B, TapDevice(device.detach()), link, offloads={0x28: "bounded:10"})
    now, written, steps = 100.0, 0, 0
    while given and steps < _MOST_STEPS:
        steps += 1
        how, packet = given.number(1), given.take(given.number(2) & 0x7FF)
        if how & 1:
            others.send(Frames.of([repaired(packet) if how & 2 else packet]), now)
        elif len(packet) >= _VNET:
            ours.send(packet[:_VNET] + (repaired(packet[_VNET:]) if how & 2 else packet[_VNET:]))
        now += 100.0 if how & 4 else 1e-3
        node.tap.readable = True
        node.advance(now)
        written += _take(ours)
        while others.receive(now) is not None:
            pass
        assert not node.tap.is_busy
    assert node.counters()["tap_written"] == written
    ours.close()
    os.close(node.tap.fileno())


def _take(end: socket.socket) -> int:
    """What the device got."""
    count = 0
    while True:
        try:
            packet = end.recv(1 << 17)
        except BlockingIOError:
            return count
        assert len(packet) >= _VNET
        count += 1


def _step(how: int, packet: bytes) -> bytes:
    return bytes([how]) + struct.pack("<H", len(packet)) + packet


def _sent(flags: int, seq: int, payload: bytes = b"", tos: int = 0, options: Options | None = None) -> bytes:
    """As the kernel hands it down: one segment of node B to node A."""
    segment = Segment(IP_B, IP_A, 80, 4000, seq, 100, flags, 512, tos, options=options)
    return bytes(_VNET) + pack_headers(segment, MAC_A, MAC_B, 1) + payload


def _came(flags: int, seq: int, payload: bytes = b"", tos: int = 0, options: Options | None = None) -> bytes:
    segment = Segment(IP_A, IP_B, 4000, 80, seq, 2000, flags, 512, tos, options=options)
    return pack_headers(segment, MAC_B, MAC_A, 1) + payload


def seeds() -> Iterator[bytes]:
    ours, theirs = Options(1460, 7, True), Options(1460, 7, True, 0x1F)
    syn, both, ack = Flags.SYN, Flags.SYN | Flags.ACK, Flags.ACK
    opened = (
        _step(3, _came(syn, 99, options=theirs)) + _step(2, _sent(both, 1999, options=ours)) + _step(3, _came(ack, 100))
    )
    words = floats(100).tobytes()
    tagged = b"".join(_step(2, _sent(ack, 2000 + at, words[at : at + 130], 0x28)) for at in (0, 130, 64, 260))
    yield opened + tagged + _step(3, _came(ack, 100)) + _step(2, _sent(ack | Flags.FIN, 2390, b"abc"))
    yield opened + b"".join(_step(3, _came(ack, 100, payload, 0x28)) for payload in native.payloads()[:5])
    yield opened + _step(2, _sent(ack, 2000, b"plain")) + _step(2, _sent(ack, 2003, words, 0x28)) + _step(6, b"")
    yield _step(2, _sent(ack, 2000, words, 0x28)) + _step(3, _came(ack, 100, words, 0x28))
    yield b"".join(_step(3, frame) + _step(2, bytes(_VNET) + frame) for frame in native.other_frames())
    long = _sent(syn, 1999)[: _VNET + 54] + pack_options(ours, (1, 2)) + bytes([1] * 20)
    yield _step(2, long) + opened
