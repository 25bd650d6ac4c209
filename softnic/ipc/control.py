"""Control protocol: requests of applications and commands to a NIC over its Unix socket, and the replies.

A process has one SOCK_SEQPACKET connection. A request is one packet of JSON, and so is its reply; replies come in
order. A connection that the NIC refuses gets one Failed, without a request, before it is closed. File descriptors for
the NIC are passed as SCM_RIGHTS. The NIC answers every request at once: the result of what takes time (a connect, an
accept) shows as readiness of the stream's own file descriptor.

A stream is a Unix stream socket pair: one end is the application's socket, the other the NIC's. It carries the bytes of
the TCP connection and nothing else, with two exceptions:

- A connecting stream is not writable until it is connected: the application has filled its send buffer before. What
  waits in the stream when the NIC gets Connect, also from those who wrote into it too early, is never sent: the NIC
  discards it when the connection is established. It does the same when the connect fails; the stream then has the error
  and accepts another Connect.
- A listening stream, whose send buffer is full as well, carries one byte for each connection, with the file descriptor
  of the new stream. That begins with the record `ACCEPTED` (stream number, the peer's IPv4 address and port), which the
  application reads when it accepts: a file descriptor that is closed with the record in it was never accepted, and its
  connection is offered again, unless the application got bytes of the peer. Writes into a listening stream fail, with
  EPIPE.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import msgspec

from softnic.ipc.collectives_info import (
    CollectivesInfo,
    CommunicatorInfo,
    FailedCommunicatorInfo,
    QueryCollectives,
)
from softnic.ipc.membership import MembershipInfo, NoteMembership
from softnic.ipc.snapshot import CollectiveTotals, MeetingInfo, PeerWay, ProcessInfo, QueueTotals, StreamTotals

VERSION = 4
TCP_OPTIONS = (
    *("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "TCP_CONGESTION"),
    *("TCP_CORK", "TCP_QUICKACK", "TCP_DEFER_ACCEPT", "TCP_MAXSEG"),
    *("TCP_SYNCNT", "TCP_LINGER2", "TCP_WINDOW_CLAMP", "TCP_NOTSENT_LOWAT"),
)
"""Options of SetOption at IPPROTO_TCP, with the standard numbers, units (seconds; milliseconds for the timeout) and
names of algorithms. The last four are kept and have no effect."""
IP_MTU_DISCOVER, IP_RECVERR = 10, 11
"""At IPPROTO_IP: kept, without effect."""
MAX_MESSAGE = 1 << 18
"""Bytes of one request or reply."""
ACCEPTED = struct.Struct("!Q4sH2x")
ACCEPT_MARK = b"\n"
"""The byte of a listening stream."""
STREAM_BUFFER = 512 << 10
"""SO_SNDBUF of both ends of a stream, as far as the system grants it: more bytes per turn, and fewer turns."""
SOL_NIC = 0x4E49
"""The setsockopt level of options that only a NIC has."""
NIC_CODEC = 1
"""At SOL_NIC: the codec of tagged bytes, as in `bounded:10`; empty: the one in the NIC's table."""
NIC_BLOCKS = 2
"""At SOL_NIC: 1: tagged floats leave in whole coding blocks of 64 bytes, counted from where the tag was set; an
incomplete block waits until it is complete, the tag changes or the writer shuts down. So the result of a codec with
blocks (bfp) does not depend on the sizes of writes. 0: bytes leave when written."""
NIC_LANE = 3
"""At SOL_NIC, before connecting: connections with the same number, from 0 to 23, are on one queue of both NICs; -1: on
any."""
QUEUES = (1, 2, 3, 4, 6, 8)
"""Numbers of queues that a NIC may have, which all divide the number of lanes (native/nic/steering.h)."""
MOST_QUEUES = QUEUES[-1]


def queues_for(cores: int) -> int:
    """Return the number of queues of a NIC that has this many cores for them."""
    return max((queues for queues in QUEUES if queues <= cores), default=1)


MAX_SENT_CODECS = 8
"""Codecs that a StreamInfo lists."""

SYN_COUNT, LINGER2_S, MTU_DISCOVER = 6, 60, 1
"""Linux's defaults of TCP_SYNCNT, TCP_LINGER2, IP_MTU_DISCOVER (IP_PMTUDISC_WANT)."""
_MOST_LINGER2_S = 120
_LEAST_WINDOW_CLAMP = 1152
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 7200, 75, 9
"""Linux's defaults of keepalive."""
_LEVELS = {
    socket.SOL_SOCKET: ("SOL_SOCKET", "SO_"),
    socket.IPPROTO_IP: ("IPPROTO_IP", "IP_"),
    socket.IPPROTO_TCP: ("IPPROTO_TCP", "TCP_"),
    SOL_NIC: ("SOL_NIC", "NIC_"),
}


def as_kept(level: int, name: int, value: int) -> int:
    """The value that Linux keeps of a valid one that was set."""
    option = level, name
    if option == (socket.IPPROTO_TCP, socket.TCP_LINGER2):
        return -1 if value < 0 else min(value, _MOST_LINGER2_S) or LINGER2_S
    if option == (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP):
        return max(value, _LEAST_WINDOW_CLAMP) if value else 0
    return int(bool(value)) if option == (socket.IPPROTO_IP, IP_RECVERR) else value


def option_name(level: int, name: int) -> str:
    """A socket option by name: `TCP_MAXSEG at level IPPROTO_TCP`; by number where it has no name."""
    label, prefix = _LEVELS.get(level, (str(level), "\0"))
    found = [text for text in dir(socket) if text.startswith(prefix) and getattr(socket, text) == name]
    return f"{found[0] if found else name} at level {label}"


class QueryNic(msgspec.Struct, frozen=True, tag=True):
    """Asks for the NIC's description. Reply: NicInfo."""

    version: int = VERSION


class ShareConnection(msgspec.Struct, frozen=True, tag=True):
    """Makes this control connection one that child processes inherit. Reply: Done.

    It takes nothing but Inherit from then on, which any number of processes may send.
    """


class Inherit(msgspec.Struct, frozen=True, tag=True):
    """Opens a control connection for a process that inherited a shared one, whatever its user or root directory.

    The file descriptor passed along is one end of a SOCK_SEQPACKET pair that the process has made: the NIC serves it
    from then on. There is no other reply. Requests on it that name a stream are to carry a file descriptor of this
    stream, and those that concern no stream but the NIC are refused (EACCES), except QueryNic, Ping and Resolve.
    """


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Checks that the NIC answers, at a constant cost. Reply: Done."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Creates a stream, with the file descriptor that is passed, that is neither bound nor connected. Reply: Opened.

    For programs that keep nothing of their own about a stream: Bind and Connect then name it by number.
    """

    inode: int = 0
    cookie: int = 0
    """Inode and SO_COOKIE of the application's end, by which its file descriptors are known in processes that inherit
    them (see Inherit)."""


class Bind(msgspec.Struct, frozen=True, tag=True):
    """Reserves a local address (port 0: any) for a stream, or (stream 0) the one whose file descriptor is passed.

    Reply: Opened.
    """

    address: str
    port: int
    reuse: bool = False
    stream: int = 0
    share: bool = False
    """SO_REUSEPORT: others that share the port may take it too."""


class Listen(msgspec.Struct, frozen=True, tag=True):
    """Makes a bound stream a listening one. Reply: Opened."""

    stream: int
    backlog: int


class Connect(msgspec.Struct, frozen=True, tag=True):
    """Connects a stream, or (stream 0) the one whose file descriptor is passed. Reply: Opened."""

    address: str
    port: int
    stream: int = 0
    lane: int = -1
    """Connections on one lane are on one queue of every NIC; -1: any."""


class SetOption(msgspec.Struct, frozen=True, tag=True):
    """setsockopt. A change of IP_TOS or NIC_CODEC applies from the next byte written to the stream. Reply: Done.

    With stream 0 the value is only checked, so that errors are reported before there is a stream. SO_LINGER is 0 (off)
    or the seconds + 1; only 1, a reset on close, concerns the NIC.
    """

    stream: int
    level: int
    name: int
    value: int | str


class QueryOption(msgspec.Struct, frozen=True, tag=True):
    """getsockopt, for an option that SetOption takes. Reply: OptionValue."""

    stream: int
    level: int
    name: int


class QueryStream(msgspec.Struct, frozen=True, tag=True):
    """Asks for the state of one stream. `clear` removes the pending error, as SO_ERROR does. Reply: StreamInfo."""

    stream: int
    clear: bool = False


class Resolve(msgspec.Struct, frozen=True, tag=True):
    """Asks for the node with this name, or this address as text. Reply: Resolved, or ENOENT.

    Names are compared without regard to case; `node1.softnic` and `node1` are the same.
    """

    name: str


class QueryNames(msgspec.Struct, frozen=True, tag=True):
    """Asks for the names of all nodes that the NIC knows. Reply: NodeNames."""


class QueryStats(msgspec.Struct, frozen=True, tag=True):
    """Asks for the NIC's counters and up to 100 streams with numbers above `after`. Reply: NicStats."""

    after: int = 0


class Capture(msgspec.Struct, frozen=True, tag=True):
    """Starts a capture: pcapng blocks are written to the stream socket whose file descriptor is passed. Reply: Done.

    The blocks are Enhanced Packet Blocks; the reader writes section and interfaces. When the reader shuts down writing,
    Interface Statistics Blocks follow and the NIC closes; closing the socket ends the capture at once.
    `host_interface` and `wire_interface` are the interface numbers to use; -1 omits that side. A capture is of one
    queue: a recorder of the whole NIC asks for each, with the same numbers.
    """

    host_interface: int
    wire_interface: int
    snaplen: int = 0
    queue: int = 0


class Register(msgspec.Struct, frozen=True, tag=True):
    """Registers the memfd whose file descriptor is passed, sealed against shrinking. Reply: Registered.

    The NIC maps it until Unregister or the end of this control connection, and then as long as streams use it.
    """


class Unregister(msgspec.Struct, frozen=True, tag=True):
    """Deregisters a region: no request can name it any more. Reply: Done."""

    region: int


class Join(msgspec.Struct, frozen=True, tag=True):
    """Hands the NIC the connections of a communicator, for what it executes (softnic/ipc/work_queue.py). Done.

    The file descriptor passed along is one end of a SOCK_SEQPACKET pair: the work queue's socket. The lists are numbers
    of connected streams, by rank, 0 at this one's own place: for messages between NICs, for blocks of collectives, and,
    both or neither, for single messages as they are and compressed. The streams carry no bytes of the process any more,
    but stay its own: when it closes one, or the socket, the NIC ends all of them.

    `process` are the connections that the process keeps to itself, if any, with SO_KEEPALIVE: the NIC probes those of
    `control` in their place, and tells of a peer that is lost on both.

    All of these are on one queue of the NIC (NIC_LANE). `lanes` are further ones, with two lists each, as `control` and
    `data`, on another queue each: large collectives are cut over all of them.

    Ranks with 0 in all lists are connected later, if they are needed (ConnectRank).
    """

    rank: int
    control: list[int]
    data: list[int]
    messages: list[int] = []
    compressed: list[int] = []
    process: list[int] = []
    lanes: list[tuple[list[int], list[int]]] = []


class ConnectRank(msgspec.Struct, frozen=True, tag=True):
    """Hands the NIC the connections to one more rank of a communicator. Reply: Done.

    `beside` is a stream that the communicator has already. `streams` are, for this rank, those of Join's lists, in
    their order, `process` the one of the process, and `lanes` the two of each further lane. The NIC sends nothing on
    them before StartRank: the other rank's NIC may not have its ends yet.
    """

    beside: int
    rank: int
    streams: list[int]
    process: int = 0
    lanes: list[tuple[int, int]] = []


class StartRank(msgspec.Struct, frozen=True, tag=True):
    """Begins the exchange with the rank of a ConnectRank, whose first stream is `stream`. Reply: Done."""

    stream: int


class PeerCandidate(msgspec.Struct, frozen=True):
    """A UDP address at which a node may be reached."""

    host: str
    port: int
    preference: int = 0
    """The highest that answers is taken."""
    relayed: bool = False
    """A relay is there, and not the node."""


class AddPeer(msgspec.Struct, frozen=True, tag=True):
    """Adds the node `ip` as a peer at the UDP address `host`:`port`. Reply: Done.

    It is then treated as a peer of the configuration; for NICs that learn of each other at run time. With `keys` it is
    known by these public keys, the newest first. With `candidates`, for NICs that encrypt, it is reached at the best of
    these that answers; the address is then one more of preference 0, or `host` is empty. They may be replaced at any
    time: the one where the peer is reached stays until a better one answers.
    """

    ip: str
    host: str = ""
    port: int = 0
    keys: list[str] = []
    candidates: list[PeerCandidate] = []


class AddPeerKey(msgspec.Struct, frozen=True, tag=True):
    """Knows the node `ip` by this public key from now on, beside the newest one that it is known by. Reply: Done.

    Where it had none, it is talked to by its key alone from now on.
    """

    ip: str
    key: str


class RevokeKey(msgspec.Struct, frozen=True, tag=True):
    """Uses a public key no more: sessions by it end at once, and connections to a node without another key are reset.

    Reply: Done. The NIC remembers it as long as it runs; `revoked` of the configuration has it beyond that.
    """

    key: str


class ReplaceIdentity(msgspec.Struct, frozen=True, tag=True):
    """Reads the file of the NIC's private keys again, and uses what it has. Reply: Keys. Connections go on."""


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
    """Rate of the emulated egress link; None: not limited."""
    wire: tuple[str, int] = ("", 0)
    """Address of the NIC's UDP socket."""
    unacknowledged: int = 0
    """Connections with unacknowledged bytes, or with an unacknowledged FIN sent first. While there are any, data of
    closed sockets still needs this NIC."""
    congestion: str = ""
    """Congestion control algorithm of streams that choose none."""
    device: str = ""
    """TAP device of the kernel that the NIC serves, whose sockets its programs use; empty: it has streams."""
    metrics: tuple[str, int] = ("", 0)
    """Address of the metrics over HTTP; port 0: none are served."""
    queues: int = 1
    """Number of its queues."""


class Opened(msgspec.Struct, frozen=True, tag=True):
    stream: int
    address: str
    port: int


class OptionValue(msgspec.Struct, frozen=True, tag=True):
    value: int | str


class Registered(msgspec.Struct, frozen=True, tag=True):
    region: int


class Keys(msgspec.Struct, frozen=True, tag=True):
    """Public keys of the NIC, the newest first."""

    keys: list[str]


class Done(msgspec.Struct, frozen=True, tag=True):
    pass


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request was refused: an errno and what to do."""

    errno: int
    message: str


class AutoInfo(msgspec.Struct, frozen=True):
    """Decision of codec = "auto" for a stream. Rates are in bytes per second, None where not measured yet."""

    raw: bool
    """Floats are sent rounded by the codec, but not encoded."""
    why: str
    """The decision and its reasons in one line."""
    trying: bool = False
    """The current mode is only probed for a moment."""
    ratio: float | None = None
    """Original to wire bytes, when last compressed."""
    codec: float | None = None
    """Original bytes per second of codec time."""
    compressed: float | None = None
    """Original bytes per second, when last compressed."""
    uncompressed: float | None = None
    """Original bytes per second, when last sent raw."""
    wire: float | None = None
    """Wire bytes per second in the current mode."""


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
    """Codec of the current tag; empty if that selects no offload."""
    peer_codecs: list[int] | None = None
    """Codec numbers that both NICs can decode; None during the handshake or if the peer has no softnic NIC."""
    bytes_sent: int = 0
    """Original bytes acknowledged by the peer."""
    bytes_received: int = 0
    wire_bytes_sent: int = 0
    """Ethernet bytes of the frames sent for this stream, retransmissions included."""
    wire_bytes_received: int = 0
    offload_original_bytes: int = 0
    """Original bytes sent in frames with a payload header; those sent again count once."""
    offload_encoded_bytes: int = 0
    """Payload bytes that these became."""
    send_queue: int = 0
    """Bytes accepted from the application and not acknowledged."""
    receive_queue: int = 0
    retransmits: int = 0
    srtt: float = 0.0
    rttvar: float = 0.0
    rto: float = 0.0
    cwnd: int = 0
    """Wire bytes."""
    mss: int = 0
    auto: AutoInfo | None = None
    """Decision of codec = "auto", once there is one."""
    congestion: str = ""
    """Congestion control algorithm."""
    closed: bool = False
    """The application has closed all descriptors of the stream."""
    sent_codecs: list[str] = []
    """Codecs of the tags used so far, in the order of their first use, at most MAX_SENT_CODECS: what an application or
    a collective chose for its bytes, whatever the current tag is."""
    notsent: int = 0
    """Bytes of `send_queue` that were never sent."""
    queue: int = 0
    """Of the NIC, that carries it."""
    min_rtt: float = 0.0
    """Least round trip of the last minutes; 0: not measured."""

    @property
    def ratio(self) -> float:
        """Original to payload bytes of tagged data sent; 1 if there was none."""
        return self.offload_original_bytes / self.offload_encoded_bytes if self.offload_encoded_bytes else 1.0


class Resolved(msgspec.Struct, frozen=True, tag=True):
    """A node's name and address."""

    name: str
    address: str


class NodeNames(msgspec.Struct, frozen=True, tag=True):
    """Nodes' addresses by name."""

    addresses: dict[str, str]


class NicEvent(msgspec.Struct, frozen=True):
    """An event in the life of a NIC."""

    time: float
    """Seconds since 1970, of the last occurrence."""
    text: str
    count: int = 1


class NicStats(msgspec.Struct, frozen=True, tag=True):
    info: NicInfo
    counters: dict[str, int]
    streams: list[StreamInfo]
    more: bool = False
    """There are streams with higher numbers."""
    events: list[NicEvent] = []
    """The latest, oldest first; with the first page only."""
    process: ProcessInfo = ProcessInfo()
    totals: StreamTotals = StreamTotals()
    collectives: CollectiveTotals = CollectiveTotals()
    queues: list[QueueTotals] = []
    """All queues, in order."""
    peers: int = 0
    """Number of nodes that the NIC exchanges frames with."""
    ways: list[PeerWay] = []
    """To the first 32 of them, by address; with the first page only."""
    meeting: MeetingInfo | None = None
    """The job whose nodes the NIC meets; None: its peers are configured."""
    memberships: list[MembershipInfo] = []
    """Of processes that are members of elastic jobs."""
    communicators: list[CommunicatorInfo] = []
    """These and `failed` come with QueryCollectives."""
    failed: list[FailedCommunicatorInfo] = []


Request = (
    QueryNic
    | ShareConnection
    | Inherit
    | Ping
    | Open
    | Bind
    | Listen
    | Connect
    | SetOption
    | QueryOption
    | QueryStream
    | Resolve
    | QueryNames
    | QueryStats
    | QueryCollectives
    | Capture
    | Register
    | Unregister
    | Join
    | ConnectRank
    | StartRank
    | NoteMembership
    | AddPeer
    | AddPeerKey
    | RevokeKey
    | ReplaceIdentity
)
Reply = (
    NicInfo
    | Opened
    | OptionValue
    | Registered
    | Keys
    | Done
    | Failed
    | StreamInfo
    | Resolved
    | NodeNames
    | NicStats
    | CollectivesInfo
)

_encode = msgspec.json.Encoder().encode
decode_request: Callable[[bytes | memoryview], Request] = msgspec.json.Decoder(Request).decode
"""Decodes a request. Raises msgspec.DecodeError, ValidationError for JSON of another form."""
decode_reply: Callable[[bytes | memoryview], Reply] = msgspec.json.Decoder(Reply).decode


def encode(message: Request | Reply) -> bytes:
    return _encode(message)
