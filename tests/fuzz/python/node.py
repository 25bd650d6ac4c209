"""A node on a link that brings anything: frames as they come, and segments of connections that exist.

Nothing raises and time goes on; what connections hold stays within their buffers; when their owner has let go of them
and time has passed, none is left, and the node waits for nothing.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet import arp, ethernet
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.headers import pack_headers, pack_options
from softnic.packet.segment import Flags, Options, Segment, Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.fuzz import seeds as native
from tests.fuzz.python._frames import repaired
from tests.fuzz.python._input import Input
from tests.nic.harness import IP_A, IP_B
from tests.tcp.flows import flow

_PORT, _PEERS_PORT = 80, 4000
_BUFFER = 20_000
_LATER_S = 100_000.0
_MOST_STEPS = 5_000
_SEGMENT = struct.Struct("<BhhHBB")
"""Flags, sequence and acknowledgement numbers (beside those expected), window, ToS, what options."""
_OPTIONS = Options(1460, 2, True, 0x1F)


class _Peer:
    """Node IP_A, made of this test alone: it sends what the input says, and hears where the other's numbers are."""

    def __init__(self, answers: bool) -> None:
        self.now = 100.0
        self.answers = answers
        """Whether it answers ARP."""
        network = MemoryNetwork()
        self.port = network.port()
        config = TcpConfig(send_buffer=_BUFFER, receive_buffer=_BUFFER)
        offloads = {0x28: "bounded:10"}
        self.node = Node(IP_B, network.port(), rng=random.Random(1), offloads=offloads, config=config)
        self.listener = self.node.host.listen(0, _PORT, 3, self.now)
        self.connection: Connection | None = None
        self.written, self.expected = 1, 0
        """Next sequence number of this side, and of the node's."""
        self.timestamps: tuple[int, int] | None = None

    def send(self, *frames: bytes) -> None:
        self.port.send(Frames.of(frames), self.now)
        self.turn()

    def turn(self) -> None:
        self.node.advance(self.now)
        self.node.host.events.clear()
        while (heard := self.port.receive(self.now)) is not None:
            for frame in heard:
                self._hear(frame)

    def _hear(self, frame: bytes) -> None:
        if frame[12:14] == b"\x08\x06" and self.answers:
            self.port.send(Frames.of([self._arp(arp.REPLY)]), self.now)
        if len(frame) >= 54 and frame[23] == 6 and frame[36:38] == _PEERS_PORT.to_bytes(2, "big"):
            sequence, acknowledged = struct.unpack_from("!II", frame, 38)
            size = len(frame) - 34 - 4 * (frame[46] >> 4)
            self.expected = (sequence + size + (frame[47] & 1) + (frame[47] >> 1 & 1)) & 0xFFFFFFFF
            if frame[47] & Flags.ACK:
                self.written = acknowledged

    @staticmethod
    def _arp(operation: int) -> bytes:
        packet = arp.build(arp.Arp(operation, mac_of(IP_A), IP_A, mac_of(IP_B), IP_B))
        return ethernet.build(mac_of(IP_B), mac_of(IP_A), ethernet.TYPE_ARP, packet)

    def segment(self, flags: int, seq: int, ack: int, window: int, tos: int, options: bytes, payload: bytes) -> bytes:
        mask = 0xFFFFFFFF
        sequence, acknowledged = (self.written + seq) & mask, (self.expected + ack) & mask
        made = Segment(IP_A, IP_B, _PEERS_PORT, _PORT, sequence, acknowledged, flags, window, tos)
        header = bytearray(pack_headers(made, mac_of(IP_B), mac_of(IP_A), 1))
        options += bytes(-len(options) % 4)
        header[46] = (20 + len(options)) // 4 << 4
        return repaired(bytes(header) + options + payload)

    def establish(self, timestamps: bool) -> None:
        """The node accepts a connection."""
        stamps = (1, 0) if timestamps else None
        self.written = 0
        self.send(self._arp(arp.REQUEST))
        self.send(self.segment(Flags.SYN, 0, 0, 60_000, 0, pack_options(_OPTIONS, stamps), b""))
        self.send(self.segment(Flags.ACK, 0, 0, 60_000, 0, self.stamps(timestamps), b""))
        self.connection = self.listener.accept()
        assert self.connection is not None

    @staticmethod
    def stamps(present: bool) -> bytes:
        return struct.pack("!BBBBII", 1, 1, 8, 10, 1, 0) if present else b""

    def end(self) -> None:
        """The owner lets go of everything, and time passes."""
        self.listener.close(self.now)
        for connection in list(self.node.host.tcp.connections):
            connection.close(self.now)
        until = self.now + _LATER_S
        steps = 0
        self.turn()
        while (due := self.node.next_time()) is not None and due < until:
            assert steps < _MOST_STEPS, "time does not go on"
            steps += 1
            self.now = max(due, self.now)
            self.turn()
        assert self.node.next_time() is None
        assert not self.node.host.tcp.connections


def _segment(peer: _Peer, given: Input, stamped: bool) -> None:
    flags, seq, ack, window, tos, how = _SEGMENT.unpack(given.take(_SEGMENT.size).ljust(_SEGMENT.size, b"\0"))
    options = given.take(min(how >> 2, 40)) if how & 1 else peer.stamps(stamped)
    payload = given.take(given.number(2) & 0x7FF)
    peer.send(peer.segment(flags, seq, ack, window, tos, options, payload))


def _frame(peer: _Peer, given: Input, stamped: bool) -> None:  # noqa: ARG001  # as the others
    right = given.number(1)
    frame = given.take(given.number(2) & 0x7FF)
    peer.send(repaired(frame) if right & 1 else frame)


def _wait(peer: _Peer, given: Input, stamped: bool) -> None:  # noqa: ARG001
    until = peer.now + given.number(2) / 1000
    while (due := peer.node.next_time()) is not None and due <= until:
        peer.now = max(due, peer.now + 1e-6)
        peer.turn()
    peer.now = max(until, peer.now)


def _write(peer: _Peer, given: Input, stamped: bool) -> None:  # noqa: ARG001
    assert peer.connection is not None
    how, size = given.number(1), given.number(2)
    peer.connection.tag(Tag(0x28) if how & 1 else Tag())
    peer.connection.send(bytes(size))
    if how & 2:
        peer.connection.shutdown_write()
    peer.turn()


def _read(peer: _Peer, given: Input, stamped: bool) -> None:  # noqa: ARG001
    assert peer.connection is not None
    peer.connection.recv(given.number(2))
    peer.turn()


def _ping(peer: _Peer, given: Input, stamped: bool) -> None:  # noqa: ARG001
    peer.node.host.ping(IP_A + given.number(1), peer.now)
    peer.turn()


def _let_go(peer: _Peer, given: Input, stamped: bool) -> None:  # noqa: ARG001
    assert peer.connection is not None
    if given.number(1) & 1:
        peer.connection.close(peer.now)
    else:
        peer.connection.abort(peer.now)
    peer.turn()


_STEPS: tuple[Callable[[_Peer, Input, bool], None], ...] = (_segment, _frame, _wait, _write, _read, _ping, _let_go)


def feed(data: bytes) -> None:
    """Input: whether timestamps are in use (1 byte: bit 0) and ARP is answered (bit 1), then steps: kind (1 byte), and
    what it takes."""
    given = Input(data)
    how = given.number(1)
    stamped = bool(how & 1)
    peer = _Peer(answers=bool(how & 2))
    peer.establish(stamped)
    while given:
        _STEPS[given.number(1) % len(_STEPS)](peer, given, stamped)
        for connection in peer.node.host.tcp.connections:
            assert flow(connection).unread <= _BUFFER
            assert connection.info(peer.now).send_queue <= _BUFFER
    peer.end()


def _data(flags: int, seq: int, ack: int, payload: bytes, tos: int = 0, options: bytes | None = None) -> bytes:
    how = 0 if options is None else len(options) << 2 | 1
    packed = b"\x00" + _SEGMENT.pack(flags, seq, ack, 60_000, tos, how) + (options or b"")
    return packed + len(payload).to_bytes(2, "little") + payload


def seeds() -> Iterator[bytes]:
    ack, fin = Flags.ACK, Flags.ACK | Flags.FIN
    write, wait, read = b"\x03\x00\x88\x13", b"\x02\xe8\x03", b"\x04\xff\x00"
    hole = _data(ack, 100, 0, bytes(50)) + _data(ack, 0, 0, bytes(100)) + read
    yield b"\x02" + hole + write + wait + _data(ack, 0, 0, b"") + _data(fin, 0, 0, b"") + b"\x06\x01"
    sack = pack_options(Options(), None) + struct.pack("!BBBBII", 1, 1, 5, 10, 2000, 3000)
    yield b"\x02" + write + _data(ack, 0, -5000, b"", options=sack) * 4 + wait * 3
    yield b"\x03" + b"".join(_data(ack, 0, 0, payload, 0x28) for payload in native.payloads()[:4]) + read + wait
    yield b"\x01" + _data(Flags.SYN, 5, 0, b"") + _data(Flags.RST, 1, 0, b"") + _data(Flags.RST, 0, 0, b"")
    yield b"\x00\x05\x01" + b"".join(
        b"\x01\x01" + len(frame).to_bytes(2, "little") + frame for frame in native.other_frames()
    )
    yield b"\x01\x03\x03\x10\x00" + wait + _data(fin, 0, 0, b"abc") + wait * 70
