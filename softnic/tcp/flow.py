"""State of one connection (the transmission control block of RFC 9293, section 3.3.1).

A flow holds every number of a connection and of the NIC's work on it, so that a received run is looked up once. It does
nothing itself. Parts with rules of their own (`snd`, `rcv`, `rack`, ...) change only through their methods. Each other
field is assigned by one module, named above its group; all modules may read it (tests/tcp/test_owners.py).

Positions are as in seq.py, times in seconds on the caller's clock; NEVER means that a deadline is not set.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, Protocol

from softnic.packet import ipv4
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
from softnic.tcp.snd import SendState
from softnic.tcp.state import State
from softnic.tcp.timestamps import Timestamps

NEVER: Final = float("inf")
TURN_BYTES = 128 << 10
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
    link_full_at: float
    offload_tos: Collection[int]

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


@dataclass(slots=True, eq=False, weakref_slot=True)
class Flow:
    """Addresses are (IPv4 address, port), both in host order. `iss` is our initial sequence number."""

    tcp: FlowServices
    local: tuple[int, int]
    peer: tuple[int, int]
    iss: InitVar[int]
    now: InitVar[float]

    snd: SendState = field(init=False)
    rcv: ReceiveState = field(init=False)
    rtt: RetransmissionTimeout = field(init=False)
    congestion: Congestion = field(init=False)
    recovery: Recovery = field(init=False)
    rack: Rack = field(init=False)
    pacer: Pacer = field(init=False)
    timestamps: Timestamps = field(init=False)
    delayed_ack: DelayedAck = field(init=False)
    receive_tuning: ReceiveTuning = field(init=False)
    send_tuning: SendTuning = field(init=False)

    # transitions.py
    state: State = State.CLOSED
    error: int = 0
    """The errno with which the connection ended."""
    error_message: str = ""
    ended: bool = False
    """`on_closed` has been called, or the application never saw the connection."""
    soft_error: tuple[int, str] | None = None
    """errno and text of what ARP or ICMP reported since the peer was last heard; the reason if the flow times out."""

    # listener.py
    listener: AcceptQueue | None = None
    """None once established, and for connections that this side opened."""

    # connection.py
    nodelay: bool = False
    """Short segments do not wait for ACKs (TCP_NODELAY)."""
    user_timeout_s: float = field(init=False)
    orphaned: bool = False
    """The application has closed the connection."""
    wants_space: bool = False
    """The send buffer was full; `Writable` is due when it is not."""
    readable_notified: bool = False
    """`Readable` was sent since the last `consume`."""

    # handshake.py
    use_sack: bool = False
    """Both SYNs permitted SACK (RFC 2018, section 2)."""
    use_timestamps: bool = False
    peer_scales: bool = False
    """The peer's SYN offered window scaling."""
    peer_codecs: int | None = None
    """Bitmap of the codecs that the peer's NIC offered; None: the peer has no compressing NIC."""

    # input.py
    last_heard: float = field(init=False)
    last_challenge: float = -NEVER
    """When the last challenge ACK was sent (RFC 5961)."""
    frames_received: int = 0

    # output.py
    ack_pending: bool = False
    dup_acks_pending: int = 0
    """Duplicate ACKs to send, one for each frame that arrived out of order."""
    syn_pending: bool = False
    blocked: bool = False
    """The NIC took nothing although there was something to send: the peer's MAC address is not known."""
    last_sent_at: float = field(init=False)
    syn_sent_at: float = field(init=False)
    last_ack_sent: int = 0
    """Position acknowledged by the last segment sent (RFC 7323's Last.ACK.sent)."""
    retransmits: int = 0
    frames_sent: int = 0
    wire_bytes_sent: int = 0

    # arm_timers.py
    rto_at: float = NEVER
    persisting: bool = False
    """`rto_at` is the persist timer (RFC 9293, section 3.8.6.1)."""
    unacked_since: float = field(init=False)
    """Since when the peer owes an acknowledgement."""
    pto: float = NEVER
    """When a tail loss probe is sent (RFC 8985, section 7)."""
    reo_timer: float = NEVER
    """When ranges that are only late so far count as lost (RFC 8985, section 6.2)."""
    pacing_timer: float = NEVER
    close_at: float = NEVER
    """End of TIME-WAIT, or of an orphan that makes no progress."""
    gap_at: float = NEVER
    """When out-of-order data is dropped."""

    # keepalive.py
    keepalive: tuple[float, float, int] | None = None
    """Idle seconds, interval seconds, number of probes."""
    keepalive_at: float = NEVER
    keepalive_probes: int = 0
    """Probes sent since the peer was last heard."""

    # trim.py
    trim_at: float = NEVER
    """When an idle flow returns the memory of its empty buffers."""

    # path_mtu.py
    path_mtu: int = 0
    """IPv4 bytes that a frame to the peer may have; 0: as many as the link carries."""
    path_mtu_until: float = NEVER
    """When longer frames are tried again."""
    reported_mtu: tuple[int, int] | None = None
    """MTU reported by ICMP for the segment at a position, not confirmed yet."""

    # scheduler.py
    queued: bool = False
    """The flow is in a ring of flows that may have something to send."""
    turn_bytes: int = TURN_BYTES
    """Wire bytes left of the flow's turn."""
    scheduled_at: float = NEVER
    """Latest time at which the timers are checked."""

    # direct_placement.py
    rx_placement: Any = None
    """Chooses the memory into which received bytes are decoded; None: any."""

    # softnic/nic/flows.py
    nic: Any = None
    """The NIC's state of this flow (`NicFlow`)."""

    def __post_init__(self, iss: int, now: float) -> None:
        config = self.tcp.config
        self.snd = SendState(config.send_buffer, iss)
        self.rcv = ReceiveState(
            config.receive_buffer, config.max_out_of_order, self.tcp.budget, self.tcp.counters.prune_out_of_order
        )
        self.rtt = RetransmissionTimeout(config.initial_rto_s, config.min_rto_s, config.max_rto_s)
        self.congestion = ALGORITHMS[config.congestion](config.mtu + 14)
        self.recovery = Recovery()
        self.rack = Rack()
        self.pacer = Pacer()
        self.timestamps = Timestamps(self.tcp.timestamp_offset(self.peer[0]))
        self.delayed_ack = DelayedAck(config.ack_delay_s)
        self.receive_tuning = ReceiveTuning(config.receive_buffer_max, self.tcp.budget)
        self.send_tuning = SendTuning(config.send_buffer, config.send_buffer_max, self.tcp.budget)
        self.user_timeout_s = config.user_timeout_s
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

    @property
    def peer_name(self) -> str:
        return f"{ipv4.text(self.peer[0])}:{self.peer[1]}"

    @property
    def has_output(self) -> bool:
        """Whether there is something to send, windows permitting."""
        snd = self.snd
        return (
            snd.snd_nxt < snd.buffer.end + snd.fin_queued
            or self.ack_pending
            or self.dup_acks_pending > 0
            or snd.scoreboard.lost > 0
            or self.syn_pending
        )

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
            self.trim_at,
        )

    def replace_congestion(self, congestion: Congestion) -> None:
        """Continues with another congestion control, or with an earlier state of the same one."""
        self.congestion = congestion
