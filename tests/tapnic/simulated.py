"""Simulated kernels on the host side of NICs. A pair of Unix sockets preserves packet boundaries, as TAP does."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from dataclasses import replace

from softnic.capture import reader
from softnic.capture.capture_file import CaptureFile
from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.capture.pcapng import interface_description, section_header
from softnic.link.base import Link
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.packet.ethernet import mac_of
from softnic.packet.headers import HEADER_BYTES, pack_headers, parse_options
from softnic.packet.segment import Flags, Options, Segment
from softnic.tapnic.device import TapDevice
from softnic.tapnic.nic import MakeTurn, TapNic
from softnic.tapnic.turn import TapTurn
from tests.capture.lab import Reader

ADDRESSES = 0x0A4D0001, 0x0A4D0002
PORTS = 40000, 5000
TOS, OTHER_TOS = 0x28, 0x48
GAP = 10
"""Length in bytes of virtio-net's header."""
SYN, ACK, PSH, FIN, RST = Flags.SYN, Flags.ACK, Flags.PSH, Flags.FIN, Flags.RST


UNLIMITED = EmulationSpec(rate_bps=None)
HEAD = section_header("softnic") + interface_description("host") + interface_description("wire")
"""Of a file with what a kernel's NIC records."""


class Kernel:
    """One kernel: it sends packets through its NIC and collects those that the NIC delivers."""

    def __init__(
        self, stack: ExitStack, index: int, codec: str, inner: Link, hook: CaptureHook, make_turn: MakeTurn = TapTurn
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setblocking(False)
        self._socket = stack.enter_context(ours)
        self.mac = mac_of(ADDRESSES[index])
        tap = TapDevice(theirs.detach())
        stack.callback(tap.close)
        self.hook = hook
        stack.callback(hook.close)
        link = CapturedLink(inner, hook)
        names = {TOS: codec, OTHER_TOS: "bfp:7"}
        self.node = TapNic(*(ADDRESSES[index], self.mac, tap, link), offloads=names, capture=hook, make_turn=make_turn)
        self._ends = (ADDRESSES[index], ADDRESSES[1 - index], PORTS[index], PORTS[1 - index])

    def record(self) -> Reader:
        """Begin a capture of both sides."""
        ours, theirs = socket.socketpair()
        return Reader(self.hook.start(theirs.detach(), 0.0, host_interface=0, wire_interface=1), ours)

    def recorded(self, reading: Reader) -> CaptureFile:
        """End a capture, and return it."""
        return reader.parse(HEAD + reading.drain(lambda: self.hook.poll(0.0)))

    def segment(self, seq: int, flags: int, *, ack: int = 0, tos: int = 0, options: Options | None = None) -> Segment:
        return Segment(*self._ends, seq, ack, flags, 1000, tos, (1, 1), options)

    def send(self, segment: Segment, payload: bytes = b"", cut: int = 1448) -> None:
        """Send a segment as a driver gets it: whole, with the checksum left to the card."""
        destination = mac_of(segment.dst)
        header = bytearray(pack_headers(segment, destination, self.mac, 1))
        struct.pack_into("!H", header, 16, len(header) - 14 + len(payload))
        big = len(payload) > cut
        self._socket.send(struct.pack("=BBHHHH", 1, big, len(header), cut if big else 0, 34, 16) + header + payload)

    def send_frame(self, frame: bytes) -> None:
        self._socket.send(bytes(GAP) + frame)

    def packets(self) -> list[bytes]:
        """Return the Ethernet frames that the NIC has delivered since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(1 << 17)[GAP:])
            except BlockingIOError:
                return found

    def received(self) -> list[tuple[int, int, bytes]]:
        """Return the TCP segments delivered since the last call: sequence number, flags, payload."""
        segments = []
        for packet in self.packets():
            start = 34 + 4 * (packet[46] >> 4)
            assert int.from_bytes(packet[16:18], "big") == len(packet) - 14
            segments.append((int.from_bytes(packet[38:42], "big"), packet[47], packet[start:]))
        return segments


class Pair:
    """Two kernels, each with a NIC, on one network."""

    def __init__(self, stack: ExitStack, codec: str = "bounded:10", spec: EmulationSpec = UNLIMITED) -> None:
        network = MemoryNetwork()
        self.left, self.right = (
            Kernel(stack, index, codec, EmulatedLink(network.port(), spec, seed=index), CaptureHook(ADDRESSES[index]))
            for index in range(2)
        )

    def pump(self, now: float = 0.0) -> None:
        for _ in range(3):
            for kernel in (self.left, self.right):
                kernel.node.tap.readable = True
                kernel.node.advance(now)

    def connect(self, iss: int = 99, irs: int = 499) -> None:
        """Exchange SYN and SYN-ACK; the first bytes are at iss + 1 and irs + 1."""
        options = Options(mss=1460, window_scale=7, sack_permitted=True)
        self.left.send(self.left.segment(iss, SYN, options=options))
        self.pump()
        self.right.send(self.right.segment(irs, SYN | ACK, ack=iss + 1, options=replace(options)))
        self.pump()
        self.left.packets(), self.right.packets()


def codecs_offered(frame: bytes) -> int | None:
    """Return the codecs offered by the options of a SYN."""
    return parse_options(frame[HEADER_BYTES : 34 + 4 * (frame[46] >> 4)]).codecs
