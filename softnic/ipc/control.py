"""The control protocol: what programs and the commands say to a NIC over its Unix socket.

One SOCK_SEQPACKET connection a process; one request is one packet of JSON, and so is its reply, in order. A
connection that the NIC refuses gets one Failed, unasked, before it is closed. A
request that hands the NIC descriptors carries them as SCM_RIGHTS. The NIC answers every request at once: what
takes time (a connect, an accept) shows as readiness of the stream's own descriptor.

A stream is a Unix stream socket pair: one end is the program's socket, the other the NIC's. Its bytes are the
bytes of the TCP connection, and nothing else, but for two things:

- a connecting stream is not writable until it is connected, because the program has filled its way out with
  `Connect.filler` bytes, which the NIC reads and discards when the connection is established. It does the same
  when the connect fails; the stream then has its error and takes another Connect;
- what a listening stream brings are not bytes but records of `ACCEPTED` (stream number, peer's IPv4 address and
  port), each with the new stream's descriptor. The first byte in this is `ACCEPT_MARK`, which the program reads when
  it accepts: a descriptor that is closed with the mark in it was never accepted, and its connection is reset.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import msgspec

VERSION = 2
TCP_OPTIONS = ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "TCP_CONGESTION")
"""What SetOption takes at IPPROTO_TCP, with the standard numbers, units (seconds; milliseconds for the timeout) and
names of algorithms."""
MAX_MESSAGE = 1 << 18
"""Bytes of one request or reply."""
ACCEPTED = struct.Struct("!Q4sH2x")
ACCEPT_MARK = b"\n"
STREAM_BUFFER = 512 << 10
"""SO_SNDBUF of both ends of a stream, as far as the system grants it: more bytes a turn, for fewer turns."""
SOL_NIC = 0x4E49
"""The setsockopt level of what only a NIC has."""
NIC_CODEC = 1
"""At SOL_NIC: the codec of tagged bytes, as in `bounded:10`; empty for the one of the NIC's table."""
NIC_BLOCKS = 2
"""At SOL_NIC: 1: tagged floats leave in whole stretches of 64 bytes, counted from where the tag was set; what is left
of one waits until it is complete, the tag changes, or nothing more will be written. So a codec with blocks (bfp) makes
the same of them whenever they were written. 0: what is written leaves, as TCP's bytes do."""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 7200, 75, 9
"""Keepalive as a stream has it until it is set otherwise: Linux's defaults."""
_LEVELS = {
    socket.SOL_SOCKET: ("SOL_SOCKET", "SO_"),
    socket.IPPROTO_IP: ("IPPROTO_IP", "IP_"),
    socket.IPPROTO_TCP: ("IPPROTO_TCP", "TCP_"),
    SOL_NIC: ("SOL_NIC", "NIC_"),
}


def option_name(level: int, name: int) -> str:
    """A socket option as programs write it: `TCP_MAXSEG at level IPPROTO_TCP`, numbers where there are no names."""
    label, prefix = _LEVELS.get(level, (str(level), "\0"))
    found = [text for text in dir(socket) if text.startswith(prefix) and getattr(socket, text) == name]
    return f"{found[0] if found else name} at level {label}"


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Asks who the NIC is. Answered by NicInfo."""

    version: int = VERSION


class Bind(msgspec.Struct, frozen=True, tag=True):
    """Reserves a local address for the stream whose descriptor comes along (port 0: any). Opened."""

    address: str
    port: int
    reuse: bool = False


class Listen(msgspec.Struct, frozen=True, tag=True):
    """Makes a bound stream a listening one. Opened."""

    stream: int
    backlog: int


class Connect(msgspec.Struct, frozen=True, tag=True):
    """Starts a connection: of a bound stream, or (stream 0) of one whose descriptor comes along. Opened."""

    address: str
    port: int
    stream: int = 0
    filler: int = 0


class SetOption(msgspec.Struct, frozen=True, tag=True):
    """setsockopt. A change of IP_TOS or NIC_CODEC holds from the next byte written to the stream on. Done.

    With stream 0 the value is only looked at: what a NIC would refuse is refused before there is a stream.
    """

    stream: int
    level: int
    name: int
    value: int | str


class Status(msgspec.Struct, frozen=True, tag=True):
    """Asks for the state of one stream. `clear` takes the pending error away, as SO_ERROR does. StreamInfo."""

    stream: int
    clear: bool = False


class Stats(msgspec.Struct, frozen=True, tag=True):
    """Asks for the NIC's counters and up to 200 streams with numbers above `after`. NicStats."""

    after: int = 0


class Capture(msgspec.Struct, frozen=True, tag=True):
    """Starts a capture: pcapng blocks go to the stream socket whose descriptor comes along. Done.

    The blocks are Enhanced Packet Blocks; the reader writes section and interfaces. When the reader shuts down its
    way out, Interface Statistics Blocks follow and the NIC closes; closing the socket ends the capture at once.
    `host_interface`/`wire_interface` are the interface numbers to use, -1: leave that side out.
    """

    host_interface: int
    wire_interface: int
    snaplen: int = 0


class Register(msgspec.Struct, frozen=True, tag=True):
    """Has the NIC map the memfd whose descriptor comes along, sealed against shrinking. Registered.

    It stays mapped until Unregister or the end of this control connection, and then for as long as streams use it.
    """


class Unregister(msgspec.Struct, frozen=True, tag=True):
    """Takes a region back: no stream can name it any more. Done."""

    region: int


class UseRecords(msgspec.Struct, frozen=True, tag=True):
    """Puts a connected stream into registered mode (softnic/ipc/records.py) from the next byte written on. Done.

    What the NIC has for the program by then is in the descriptor as bytes; nothing more comes before it is asked for.
    """

    stream: int


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """The program wants its memory back at once: receives are forgotten, and the connection is reset if what was
    sent from registered memory is not all acknowledged. Done."""

    stream: int


class Join(msgspec.Struct, frozen=True, tag=True):
    """Hands the NIC the connections of a communicator, for collectives that it executes (softnic/ipc/work_queue.py).
    Done.

    The descriptor that comes along is one end of a SOCK_SEQPACKET pair: the group socket. `words` and `data` are the
    numbers of connected streams, by rank, 0 at this one's own place. They carry no bytes of the program any more, but
    stay its own: when one is closed, or the group socket is, the NIC ends the group and all of its connections.
    """

    rank: int
    words: list[int]
    data: list[int]


class AddPeer(msgspec.Struct, frozen=True, tag=True):
    """From now on the node `ip` is heard and reached at the UDP address `host`:`port`. Done.

    As a peer of the configuration; for NICs that learn of each other only when they run.
    """

    ip: str
    host: str
    port: int


class NicInfo(msgspec.Struct, frozen=True, tag=True):
    version: int
    name: str
    ip: str
    mac: str
    mtu: int
    mode: str
    offloads: dict[str, str]
    """ToS as in `0x28`, to codec."""
    codecs: list[int]
    pid: int
    rate_bps: float | None = None
    """Of the emulated link, on the NIC's way out; None: as fast as the wire is."""
    wire: tuple[str, int] = ("", 0)
    """Where the NIC's UDP socket is bound."""
    unacknowledged: int = 0
    """Connections that still have something on its way to a peer that waits for it: bytes, or the first end of stream.
    Until there are none, what programs have written and closed needs this NIC."""
    congestion: str = ""
    """The congestion control algorithm of streams that choose none."""


class Opened(msgspec.Struct, frozen=True, tag=True):
    stream: int
    address: str
    port: int


class Registered(msgspec.Struct, frozen=True, tag=True):
    region: int


class Done(msgspec.Struct, frozen=True, tag=True):
    pass


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request was refused: an errno and what to do."""

    errno: int
    message: str


class AutoInfo(msgspec.Struct, frozen=True):
    """What codec = "auto" does about a stream, and why. Rates in bytes a second, None where not measured yet."""

    raw: bool
    """It sends the floats as the codec leaves them, without encoding them."""
    why: str
    """All of this in a line for people."""
    trying: bool = False
    """It is so for a moment only, to see what that gives."""
    ratio: float | None = None
    """Original to wire bytes, last time it compressed."""
    codec: float | None = None
    """Original bytes for each second that the codec worked."""
    compressed: float | None = None
    """Original bytes, last time it compressed, and last time it sent raw."""
    uncompressed: float | None = None
    wire: float | None = None
    """Wire bytes, as it goes now."""


class StreamInfo(msgspec.Struct, frozen=True, tag=True):
    """One stream, as `softnic.socket.info` and `softnic stat` show it. Times in seconds, sizes in bytes."""

    stream: int
    state: str
    """The RFC 9293 name, `BOUND` or `LISTEN`."""
    local: tuple[str, int]
    peer: tuple[str, int] | None = None
    error: int = 0
    error_message: str = ""
    tos: int = 0
    codec: str = ""
    """Of the tag now set; empty where it selects no offload."""
    peer_codecs: list[int] | None = None
    """What both NICs can decode; None until the handshake is over or where the peer has no such NIC."""
    bytes_sent: int = 0
    """Original bytes acknowledged by the peer's TCP."""
    bytes_received: int = 0
    wire_bytes_sent: int = 0
    """Ethernet bytes of the frames sent for this stream, retransmissions included."""
    wire_bytes_received: int = 0
    offload_original_bytes: int = 0
    """Original bytes sent in frames with a payload header, and the payload bytes they became."""
    offload_encoded_bytes: int = 0
    send_queue: int = 0
    """Bytes accepted and not acknowledged."""
    receive_queue: int = 0
    retransmits: int = 0
    srtt: float = 0.0
    rttvar: float = 0.0
    rto: float = 0.0
    cwnd: int = 0
    """Wire bytes."""
    mss: int = 0
    auto: AutoInfo | None = None
    """Where the codec is one that the NIC may leave out, once it has decided something."""
    congestion: str = ""
    """The congestion control algorithm."""

    @property
    def ratio(self) -> float:
        """Original bytes to payload bytes, of what was sent tagged; 1 where nothing was."""
        return self.offload_original_bytes / self.offload_encoded_bytes if self.offload_encoded_bytes else 1.0


class NicEvent(msgspec.Struct, frozen=True):
    """Something that happened to a NIC, for people."""

    time: float
    """Seconds since 1970; of the last one, where it happened again and again."""
    text: str
    count: int = 1


class NicStats(msgspec.Struct, frozen=True, tag=True):
    info: NicInfo
    counters: dict[str, int]
    streams: list[StreamInfo]
    more: bool = False
    """More streams stand behind the last one."""
    events: list[NicEvent] = []
    """The latest, oldest first; with the first page only."""


Request = (
    Hello
    | Bind
    | Listen
    | Connect
    | SetOption
    | Status
    | Stats
    | Capture
    | Register
    | Unregister
    | UseRecords
    | Withdraw
    | Join
    | AddPeer
)
Reply = NicInfo | Opened | Registered | Done | Failed | StreamInfo | NicStats

_encode = msgspec.json.Encoder().encode
decode_request: Callable[[bytes | memoryview], Request] = msgspec.json.Decoder(Request).decode
"""Request of one packet. Raises msgspec.DecodeError (a ValidationError where it is JSON of another form)."""
decode_reply: Callable[[bytes | memoryview], Reply] = msgspec.json.Decoder(Reply).decode


def encode(message: Request | Reply) -> bytes:
    return _encode(message)
