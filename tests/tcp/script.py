"""One host against a scripted peer: the test writes the peer's segments and checks the host's replies.

Numbers in scripts are positions: SYN 0, data from 1. The peer's initial sequence number stands close below 2^32, so
every script of any length crosses the wrap.
"""

from __future__ import annotations

from random import Random

from softnic.packet import ipv4
from softnic.packet.segment import Flags, Options, Segment, Transmitted
from softnic.tcp import seq
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.host import Host
from softnic.tcp.send_buffer import Cuts
from softnic.tcp.state import State
from tests.tcp.lab import CODECS

FIN, SYN, RST, PSH, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.PSH, Flags.ACK))
LOCAL = ipv4.address("10.77.0.1")
PEER = ipv4.address("10.77.0.2")
PEER_MAC = bytes.fromhex("02534e4d0002")
PEER_ISS = 0xFFFFFF00
MSS = 1000


class Script:
    """A host with `config` and a scripted peer, which by default offers MSS 1000 and neither scaling nor timestamps."""

    def __init__(self, config: TcpConfig | None = None) -> None:
        self.now = 100.0
        self.host = Host(
            LOCAL,
            bytes.fromhex("02534e4d0001"),
            transmitter=self,
            send_frame=self.send_frame,
            rng=Random(5),
            config=config,
            cuts_of=lambda tag: Cuts(lossless=tag.codec == "raw"),
        )
        self.host._neighbours.learn(PEER, PEER_MAC, self.now + 1e6, unasked=True)
        self._out: list[Segment] = []
        self.frames: list[bytes] = []
        self.iss = 0
        """The host's initial sequence number."""
        self.connection: Connection
        self.sport, self.dport = 5000, 80
        """The peer's and the host's port, as the host sees them."""

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        assert destination == PEER_MAC
        assert now == self.now
        taken = min(len(segment.payload), max_frames * MSS)
        segment.payload = memoryview(bytes(segment.payload[:taken]))
        self._out.append(segment)
        frames = -(-taken // MSS) or 1
        return Transmitted(taken, frames, taken + 54 * frames)

    def send_frame(self, frame: bytes, now: float) -> None:
        assert now == self.now
        self.frames.append(frame)

    def receive(
        self,
        flags: int = ACK,
        seq: int = 1,
        ack: int = 1,
        data: bytes = b"",
        *,
        window: int = 65535,
        options: Options | None = None,
        timestamps: tuple[int, int] | None = None,
        frames: int = 1,
    ) -> list[Segment]:
        """Sends a segment from the peer; returns the host's immediate replies."""
        self.feed(flags, seq, ack, data, window=window, options=options, timestamps=timestamps, frames=frames)
        return self.sent()

    def feed(
        self,
        flags: int = ACK,
        seq: int = 1,
        ack: int = 1,
        data: bytes = b"",
        *,
        window: int = 65535,
        options: Options | None = None,
        timestamps: tuple[int, int] | None = None,
        frames: int = 1,
        sacks: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """As `receive`, but the host is not asked for output yet: one of several segments of a batch. `sacks` are
        positions, too."""
        mask = 0xFFFFFFFF
        segment = Segment(PEER, LOCAL, self.sport, self.dport, (PEER_ISS + seq) & mask, (self.iss + ack) & mask, flags)
        segment.window, segment.options, segment.timestamps = window, options, timestamps
        segment.payload, segment.frames = memoryview(data), frames
        segment.sacks = tuple(((self.iss + start) & mask, (self.iss + end) & mask) for start, end in sacks)
        self.host.receive_segment(segment, self.now)

    def sent(self) -> list[Segment]:
        """Lets the host send; returns all segments it has sent since the last call."""
        self.host.advance(self.now)
        self.host.output(self.now, 1 << 20)
        taken, self._out = self._out, []
        return taken

    def wait(self, seconds: float) -> list[Segment]:
        """Advances the clock; returns the segments the host sends meanwhile."""
        end = self.now + seconds
        taken = self.sent()
        while (time := self.host.next_time()) is not None and time <= end:
            self.now = max(self.now, time)
            taken += self.sent()
        self.now = end
        return taken

    def accept(self, backlog: int = 5, **syn: object) -> Connection:
        """The peer opens a connection to port 80, with its SYN's options as given."""
        listener = self.host.listen(0, 80, backlog, self.now)
        options = Options(mss=MSS, codecs=CODECS)
        timestamps = syn.get("timestamps")
        assert timestamps is None or isinstance(timestamps, tuple)
        if "window_scale" in syn:
            assert isinstance(syn["window_scale"], int)
            options.window_scale = syn["window_scale"]
        options.sack_permitted = bool(syn.get("sack_permitted"))
        [reply] = self.receive(SYN, 0, 0, options=options, timestamps=timestamps)
        assert reply.flags == SYN | ACK
        self.iss = reply.seq
        self.receive(ACK, 1, 1, timestamps=timestamps)
        connection = listener.accept()
        assert connection is not None
        assert connection.state is State.ESTABLISHED
        listener.close(self.now)
        self.host.events.clear()
        self.connection = connection
        return connection

    def connect(self) -> Connection:
        """The host opens a connection to the peer's port 80; it is left in SYN-SENT, its SYN sent."""
        self.sport = 80
        self.connection = self.host.connect(PEER, 80, self.now)
        self.dport = self.connection.local[1]
        [syn] = self.sent()
        assert syn.flags == SYN
        self.iss = syn.seq
        return self.connection

    def established(self, codecs: int | None = CODECS) -> Connection:
        """As `connect`, followed by the peer's SYN-ACK and the host's ACK."""
        connection = self.connect()
        [ack] = self.receive(SYN | ACK, 0, 1, options=Options(mss=MSS, codecs=codecs))
        assert ack.flags == ACK
        self.host.events.clear()
        return connection

    def shape(self, segments: list[Segment]) -> list[tuple[str, int, int, int]]:
        """Returns (flags, seq, ack, payload length) of each segment, as positions."""
        return [
            (
                "".join(name for name, bit in zip("FSRPA", (FIN, SYN, RST, PSH, ACK), strict=True) if s.flags & bit),
                seq.position(self.iss, s.seq, 0),
                seq.position(PEER_ISS, s.ack, 0) if s.flags & ACK else 0,
                len(s.payload),
            )
            for s in segments
        ]


def state_of(connection: Connection) -> State:
    """Returns the state by a call, because the type checker narrows an attribute as if it were constant."""
    return connection.state
