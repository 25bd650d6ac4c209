"""State of one connection (the transmission control block of RFC 9293, section 3.3.1).

A flow holds every number of a connection and of the NIC's work on it, so that a received run is looked up once. It does
nothing itself. Parts with rules of their own (`snd`, `rcv`, `rack`, ...) change only through their methods. Each other
field is assigned by one module, named above its group; all modules may read it (tests/tcp/test_owners.py).

Positions are as in seq.py, times in seconds on the caller's clock; NEVER means that a deadline is not set.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Protocol

from softnic._fields import ConnectionFields
from softnic._native import ffi, lib
from softnic.packet import ipv4
from softnic.packet.ipv4 import DEFAULT_TTL
from softnic.packet.segment import Segment, Transmitted
from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.autotune import ReceiveTuning, SendTuning
from softnic.tcp.budget import Budget
from softnic.tcp.config import TcpConfig
from softnic.tcp.congestion import Congestion
from softnic.tcp.counters import StackCounters
from softnic.tcp.delayed_ack import DelayedAck
from softnic.tcp.pacing import Pacer
from softnic.tcp.pmtu_cache import PathMtus
from softnic.tcp.rack import Rack
from softnic.tcp.rcv import ReceiveState
from softnic.tcp.recovery import Recovery
from softnic.tcp.rto import RetransmissionTimeout
from softnic.tcp.scoreboard import Ack
from softnic.tcp.send_buffer import CutsOf
from softnic.tcp.snd import SendState
from softnic.tcp.state import State
from softnic.tcp.timestamps import Timestamps

NEVER: Final = float("inf")
TURN_BYTES: int = lib.SN_TURN_BYTES
"""Wire bytes that a flow sends in one turn while others wait to send."""


class EventQueue(Protocol):
    def append(self, event: Any, /) -> None: ...


class AcceptQueue(Protocol):
    """The listener of a connection that is not yet established."""

    @property
    def full(self) -> bool:
        """Whether the accept queue has no place."""

    def on_established(self, flow: Flow) -> None:
        """The handshake of `flow` is complete."""

    def on_closed(self, flow: Flow) -> None:
        """`flow` ended before its handshake was complete."""


class FlowServices(Protocol):
    """The services of a node that its flows use; `TcpStack` provides them."""

    config: TcpConfig
    counters: StackCounters
    budget: Budget
    path_mtus: PathMtus
    ack: Ack
    """The acknowledgement that is being processed."""
    out: Any
    """The `sn_output` that is being sent; `out_fields`: its memory."""
    out_fields: Any
    link_full_at: float
    offload_tos: Collection[int]
    cuts_of: CutsOf

    @property
    def events(self) -> EventQueue:
        """Events for the owner of the stack."""

    def timestamp_offset(self, peer_ip: int) -> int:
        """Offset of the timestamp clock towards a peer."""

    def transmit(self, segment: Segment, frames: int, now: float) -> Transmitted | None:
        """Sends a segment in at most `frames` frames; None: the peer's MAC address is not known yet."""

    def wake(self, flow: Flow) -> None:
        """Queues a flow that may have something to send."""

    def schedule(self, flow: Flow) -> None:
        """Ensures that the flow's timers are checked when its earliest deadline is due."""

    def remove(self, flow: Flow) -> None:
        """Removes a closed flow from the table."""

    def add_time_wait(self, flow: Flow) -> Flow | None:
        """Records a flow in TIME-WAIT. Returns the oldest one if there are too many."""


class Flow(ConnectionFields):
    """Addresses are (IPv4 address, port), both in host order. `iss` is our initial sequence number."""

    __slots__ = (
        "__weakref__",
        "c",
        *("tcp", "local", "peer"),
        *("snd", "rcv", "rtt", "congestion", "recovery", "rack", "pacer", "timestamps", "delayed_ack"),
        *("receive_tuning", "send_tuning"),
        *("state", "error", "error_message", "ended", "soft_error", "listener", "peer_scales", "peer_codecs"),
        *("keepalive", "reported_mtu", "nic", "user_mss"),
    )

    # flow.py
    fast_path: bool
    """The steps of C may be taken (fast_path.py)."""
    local_ip: int
    local_port: int
    peer_ip: int
    peer_port: int
    """As `local` and `peer`."""
    super_segment: int
    trim_after_s: float
    gap_s: float

    # transitions.py
    state: State
    established: bool
    """`state` is ESTABLISHED."""
    writable: bool
    """`state` is one of WRITABLE."""
    error: int
    """The errno with which the connection ended."""
    error_message: str
    ended: bool
    """`on_closed` has been called, or the application never saw the connection."""
    soft_error: tuple[int, str] | None
    """errno and text of what ARP or ICMP reported since the peer was last heard; the reason if the flow times out."""
    has_soft_error: bool
    """`soft_error` is not None."""

    # listener.py
    listener: AcceptQueue | None
    """None once established, and for connections that this side opened."""

    # connection.py
    nodelay: bool
    """Short segments do not wait for ACKs (TCP_NODELAY)."""
    corked: bool
    """Short segments wait for more data, until `cork_at` (TCP_CORK)."""
    user_mss: int
    """Limit of the MSS in both directions (TCP_MAXSEG); 0: none."""
    ttl: int
    """Of the IPv4 headers (IP_TTL)."""
    user_timeout_s: float
    orphaned: bool
    """The application has closed the connection."""
    wants_space: bool
    """The send buffer was full; `Writable` is due when it is not."""
    readable_notified: bool
    """`Readable` was sent since the last `consume`."""

    # handshake.py
    use_sack: bool
    """Both SYNs permitted SACK (RFC 2018, section 2)."""
    use_timestamps: bool
    peer_scales: bool
    """The peer's SYN offered window scaling."""
    peer_codecs: int | None
    """Bitmap of the codecs that the peer's NIC offered; None: the peer has no compressing NIC."""

    # input.py
    last_heard: float
    last_challenge: float
    """When the last challenge ACK was sent (RFC 5961)."""
    frames_received: int

    # output.py
    ack_pending: bool
    dup_acks_pending: int
    """Duplicate ACKs to send, one for each frame that arrived out of order."""
    syn_pending: bool
    blocked: bool
    """The NIC took nothing although there was something to send: the peer's MAC address is not known."""
    last_sent_at: float
    syn_sent_at: float
    last_ack_sent: int
    """Position acknowledged by the last segment sent (RFC 7323's Last.ACK.sent)."""
    retransmits: int
    frames_sent: int
    wire_bytes_sent: int

    # arm_timers.py
    rto_at: float
    persisting: bool
    """`rto_at` is the persist timer (RFC 9293, section 3.8.6.1)."""
    unacked_since: float
    """Since when the peer owes an acknowledgement."""
    pto: float
    """When a tail loss probe is sent (RFC 8985, section 7)."""
    reo_timer: float
    """When ranges that are only late so far count as lost (RFC 8985, section 6.2)."""
    pacing_timer: float
    close_at: float
    """End of TIME-WAIT, or of an orphan that makes no progress."""
    gap_at: float
    """When out-of-order data is dropped."""
    cork_at: float
    """When a short segment is sent although the flow is corked."""

    # keepalive.py
    keepalive: tuple[float, float, int] | None
    """Idle seconds, interval seconds, number of probes."""
    keepalive_at: float
    keepalive_probes: int
    """Probes sent since the peer was last heard."""

    # trim.py
    trim_at: float
    """When an idle flow returns the memory of its empty buffers."""

    # path_mtu.py
    path_mtu: int
    """IPv4 bytes that a frame to the peer may have; 0: as many as the link carries."""
    path_mtu_until: float
    """When longer frames are tried again."""
    reported_mtu: tuple[int, int] | None
    """MTU reported by ICMP for the segment at a position, not confirmed yet."""

    # scheduler.py
    queued: bool
    """The flow is in a ring of flows that may have something to send."""
    turn_bytes: int
    """Wire bytes left of the flow's turn."""
    scheduled_at: float
    """Latest time at which the timers are checked."""

    # softnic/nic/flows.py
    nic: Any
    """The NIC's state of this flow (`NicFlow`)."""

    def __init__(self, tcp: FlowServices, local: tuple[int, int], peer: tuple[int, int], iss: int, now: float) -> None:
        config, memory = tcp.config, self.memory
        self.c = ffi.cast("sn_flow *", memory.address)
        """Address of the C struct; valid as long as the flow exists."""
        self.tcp = tcp
        self.local = self.local_ip, self.local_port = local
        self.peer = self.peer_ip, self.peer_port = peer
        self.snd = SendState(config.send_buffer, iss, memory=memory)
        self.rcv = ReceiveState(
            config.receive_buffer, config.max_out_of_order, tcp.budget, tcp.counters.prune_out_of_order, memory=memory
        )
        self.rtt = RetransmissionTimeout(config.initial_rto_s, config.min_rto_s, config.max_rto_s, memory=memory)
        self.replace_congestion(ALGORITHMS[config.congestion](config.mtu + 14))
        self.recovery = Recovery(memory=memory)
        self.rack = Rack(memory=memory)
        self.pacer = Pacer(memory=memory)
        self.timestamps = Timestamps(tcp.timestamp_offset(peer[0]), memory=memory)
        self.delayed_ack = DelayedAck(config.ack_delay_s, memory=memory)
        self.receive_tuning = ReceiveTuning(config.receive_buffer_max, tcp.budget, memory=memory)
        self.send_tuning = SendTuning(config.send_buffer, config.send_buffer_max, tcp.budget, memory=memory)
        self.state = State.CLOSED
        self.error, self.error_message, self.ended, self.soft_error = 0, "", False, None
        self.listener = None
        self.fast_path, self.super_segment = config.fast_path, config.super_segment
        self.trim_after_s, self.gap_s = config.trim_after_s, config.gap_s
        self.user_timeout_s = config.user_timeout_s
        self.user_mss, self.ttl = 0, DEFAULT_TTL
        self.peer_scales, self.peer_codecs = False, None
        self.keepalive = self.reported_mtu = self.nic = None
        self.turn_bytes = TURN_BYTES
        self.last_challenge = -NEVER
        self.rto_at = self.pto = self.reo_timer = self.pacing_timer = self.close_at = self.gap_at = self.cork_at = NEVER
        self.keepalive_at = self.trim_at = self.path_mtu_until = self.scheduled_at = NEVER
        self.syn_sent_at = self.last_heard = self.last_sent_at = self.unacked_since = now

    # Notifications: the application's view (connection.py) overrides them.

    def on_established(self) -> None:
        """A connection that this side opened is established."""

    def on_readable(self) -> None:
        """Data or the peer's FIN arrived in order."""

    def on_writable(self) -> None:
        """Data was acknowledged."""

    def on_closed(self, error: int) -> None:
        """The connection has ended, with an errno or 0."""

    # Derived values

    has_output = property(ConnectionFields.has_output)  # type: ignore[attr-defined]
    """Whether there is something to send, windows permitting."""

    @property
    def peer_name(self) -> str:
        return f"{ipv4.text(self.peer[0])}:{self.peer[1]}"

    @property
    def deadline(self) -> float:
        """The earliest of the flow's timers."""
        return min(
            self.rto_at,
            self.pto,
            self.reo_timer,
            self.pacing_timer,
            self.close_at,
            self.keepalive_at,
            self.delayed_ack.at,
            self.gap_at,
            self.cork_at,
            self.trim_at,
        )

    def replace_congestion(self, congestion: Congestion) -> None:
        """Continues with another congestion control."""
        congestion.attach(self.memory)
        self.congestion = congestion
