"""Two NICs on a network in memory, every tap of both recorded: captures whose contents the test knows."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from softnic.capture import pcapng
from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.capture.merge import Merger
from softnic.capture.sink import CaptureSink
from softnic.link.memory import MemoryNetwork
from softnic.nic.flows import DetachedFlow
from softnic.nic.nic import Mode, Nic
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.segment import Flags, Options, Segment
from tests.nic.harness import receive

IPS = (0x0A4D0001, 0x0A4D0002)
PORTS = (40000, 29478)
"""The ports of collectives, which no dissector of Wireshark takes for its own."""
ISNS = (0xFFFFF000, 7000)
"""The first stream wraps around 2^32 soon."""
TOS = 0x28
EPOCH_NS = 1_700_000_000 * 10**9
Floats = npt.NDArray[np.float32]


def gradient(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0, 0.01, count).astype(np.float32)


@dataclass
class Reader:
    """The other end of a capture, as `softnic capture` holds it."""

    sink: CaptureSink
    ours: socket.socket

    def drain(self, poll: Callable[[], None]) -> bytes:
        """Ends the capture and takes everything that comes."""
        self.ours.shutdown(socket.SHUT_WR)
        self.ours.setblocking(False)
        parts: list[bytes] = []
        while True:
            poll()
            try:
                data = self.ours.recv(1 << 20)
            except BlockingIOError:
                continue
            if not data:
                self.ours.close()
                return b"".join(parts)
            parts.append(data)


class Station:
    """A NIC with both taps; segments are made by hand."""

    def __init__(self, number: int, network: MemoryNetwork, mode: Mode, codec: str) -> None:
        self.ip = IPS[number]
        self.hook = CaptureHook(self.ip, EPOCH_NS)
        self.link = CapturedLink(network.port(), self.hook)
        self.nic = Nic(self.link, mac_of(self.ip), self.ip, {TOS: codec}, mode)
        self.flow = DetachedFlow(None)
        self.nic.lookup = lambda key: self.flow  # noqa: ARG005

    def send(self, segment: Segment, now: float, max_frames: int = 1000) -> int:
        """Sends all of a segment that the frame budget allows; returns the bytes taken."""
        segment.flow = self.flow
        transmitted = self.nic.transmit(segment, mac_of(segment.dst), max_frames, now)
        self.hook.sent(segment, transmitted, now)
        return transmitted.consumed

    def receive(self, now: float) -> list[Segment]:
        segments: list[Segment] = []
        while (received := receive(self.nic, now)) is not None:
            for one in received:
                if isinstance(one, Segment):
                    if one.options is not None:
                        self.flow.peer_codecs = one.options.codecs
                    self.hook.received(one, now)
                    segments.append(one)
                else:
                    self.hook.frame(one, now, outgoing=False)
        return segments


@dataclass
class Lab:
    """A connection from station 0 to station 1; `now` moves 1 ms with every segment."""

    mode: Mode = "fill"
    codec: str = "bounded:10"
    snaplen: int = 0
    now: float = 0.0
    seq: list[int] = field(default_factory=lambda: list(ISNS))

    def __post_init__(self) -> None:
        network = MemoryNetwork()
        self.stations = [Station(number, network, self.mode, self.codec) for number in (0, 1)]
        self.readers = [self.start(number) for number in (0, 1)]

    def start(self, number: int) -> Reader:
        ours, theirs = socket.socketpair()
        sink = self.stations[number].hook.start(
            theirs.detach(),
            self.now,
            host_interface=2 * number,
            wire_interface=2 * number + 1,
            snaplen=self.snaplen,
        )
        return Reader(sink, ours)

    def segment(self, sender: int, payload: bytes = b"", flags: int = Flags.ACK, tos: int = 0) -> Segment:
        to = 1 - sender
        segment = Segment(
            *(IPS[sender], IPS[to], PORTS[sender], PORTS[to], self.seq[sender] % 2**32, self.seq[to] % 2**32),
            *(flags, 65535, tos, (int(self.now * 1e3), 7)),
            payload=memoryview(payload),
        )
        self.seq[sender] += len(payload) + bool(flags & (Flags.SYN | Flags.FIN))
        return segment

    def deliver(self, segment: Segment, max_frames: int = 1000) -> int:
        self.now += 0.001
        sender = IPS.index(segment.src)
        taken = self.stations[sender].send(segment, self.now, max_frames)
        self.stations[1 - sender].receive(self.now)
        return taken

    def connect(self) -> None:
        for sender, flags in ((0, Flags.SYN), (1, Flags.SYN | Flags.ACK), (0, Flags.ACK)):
            segment = self.segment(sender, flags=flags)
            if flags & Flags.SYN:
                segment.options = Options(mss=1460, window_scale=7)
            self.deliver(segment)

    def send(self, payload: bytes | Floats, sender: int = 0, tos: int = 0) -> None:
        """One segment, and the acknowledgement for it."""
        data = payload if isinstance(payload, bytes) else payload.tobytes()
        self.deliver(self.segment(sender, data, Flags.ACK | Flags.PSH, tos))
        self.deliver(self.segment(1 - sender))

    def other_frame(self, frame: bytes) -> None:
        self.stations[0].nic.send_frame(frame, self.now)
        self.stations[0].hook.frame(frame, self.now, outgoing=True)
        self.stations[1].receive(self.now)

    def poll(self) -> None:
        for station in self.stations:
            station.link.advance(self.now)

    def file(self) -> bytes:
        """Ends the captures and joins them."""
        merger = Merger()
        for number, reader in enumerate(self.readers):
            merger.feed(number, reader.drain(self.poll))
        return self.head() + merger.finish()

    def head(self) -> bytes:
        blocks = [pcapng.section_header("softnic", "Linux")]
        for number, station in enumerate(self.stations):
            for side in ("host", "wire"):
                text = f"softnic {side} side, offloads {TOS:#04x}={self.codec}"
                mac = mac_of(station.ip)
                blocks.append(pcapng.interface_description(f"node{number}:{side}", text, ip=station.ip, mac=mac))
        return b"".join(blocks)


ARP = Frames.of([b"\xff" * 6 + mac_of(IPS[0]) + bytes.fromhex("0806") + bytes(28)])[0]
