"""The TCP stack: a host, its connections and listeners, and the parts of its congestion control and recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softnic.tcp import isn, seq, stack
from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.autotune import ReceiveTuning, SendTuning
from softnic.tcp.bbr import Bbr
from softnic.tcp.bbr import Mode as BbrMode
from softnic.tcp.budget import Budget
from softnic.tcp.config import LARGEST_WINDOW, TcpConfig
from softnic.tcp.congestion import Congestion
from softnic.tcp.connection import Closed, Connection, Established, Readable, Writable
from softnic.tcp.counters import StackCounters
from softnic.tcp.cubic import BETA, Cubic
from softnic.tcp.delayed_ack import NEVER, DelayedAck
from softnic.tcp.events import EchoReply, Event
from softnic.tcp.host import Host
from softnic.tcp.hystart import HyStart
from softnic.tcp.info import ConnectionInfo
from softnic.tcp.listener import AcceptReady, Listener
from softnic.tcp.liveness import QUIET_S, PeerFound, PeerLost
from softnic.tcp.neighbours import MAX_ENTRIES, Neighbours
from softnic.tcp.pacing import Pacer
from softnic.tcp.path_mtu import LEAST_PATH_MTU, update_mss
from softnic.tcp.peer_stream import COMPRESSED_TOS, peer_streams
from softnic.tcp.pmtu_cache import LIFETIME_S, PathMtus
from softnic.tcp.rack import MinimumRtt, Rack
from softnic.tcp.rcv import ReceiveState
from softnic.tcp.reassembly import Reassembly
from softnic.tcp.recovery import Recovery
from softnic.tcp.reno import Reno
from softnic.tcp.rto import RetransmissionTimeout
from softnic.tcp.scoreboard import LOST, OUT, SACKED, Ack, Scoreboard, new_ack
from softnic.tcp.send_buffer import CUT, SendBuffer
from softnic.tcp.stack import TcpStack
from softnic.tcp.state import HANDSHAKE, State
from softnic.tcp.syn_cookies import PERIOD_S, SynCookies, stamp
from softnic.tcp.totals import MAX_PEERS, PeerFlows, totals_of
from softnic.tcp.zerocopy import address_of

if TYPE_CHECKING:  # worlds are run without pytest
    import pytest

__all__ = [
    "ALGORITHMS",
    "BETA",
    "COMPRESSED_TOS",
    "CUT",
    "HANDSHAKE",
    "LARGEST_WINDOW",
    "LEAST_PATH_MTU",
    "LIFETIME_S",
    "LOST",
    "MAX_ENTRIES",
    "MAX_PEERS",
    "NEVER",
    "OUT",
    "PERIOD_S",
    "QUIET_S",
    "SACKED",
    "AcceptReady",
    "Ack",
    "Bbr",
    "BbrMode",
    "Budget",
    "Closed",
    "Congestion",
    "Connection",
    "ConnectionInfo",
    "Cubic",
    "DelayedAck",
    "EchoReply",
    "Established",
    "Event",
    "Host",
    "HyStart",
    "Listener",
    "MinimumRtt",
    "Neighbours",
    "Pacer",
    "PathMtus",
    "PeerFlows",
    "PeerFound",
    "PeerLost",
    "Rack",
    "Readable",
    "Reassembly",
    "ReceiveState",
    "ReceiveTuning",
    "Recovery",
    "Reno",
    "RetransmissionTimeout",
    "Scoreboard",
    "SendBuffer",
    "SendTuning",
    "StackCounters",
    "State",
    "SynCookies",
    "TcpConfig",
    "TcpStack",
    "Writable",
    "address_of",
    "copied_out",
    "forget_neighbours",
    "isn",
    "learn_neighbour",
    "limit_ephemeral_ports",
    "new_ack",
    "peer_streams",
    "queued_timers",
    "receive_memory",
    "remaining",
    "reordering_window_multiplier",
    "send_memory",
    "seq",
    "set_reordering_window",
    "stamp",
    "tag_ranges",
    "totals_of",
    "update_mss",
]


def learn_neighbour(host: Host, ip: int, mac: bytes, now: float) -> None:
    """Add an entry to a host's ARP cache."""
    host._neighbours.learn(ip, mac, now, unasked=True)


def forget_neighbours(host: Host) -> None:
    """Empty a host's ARP cache."""
    host._neighbours._entries.clear()


def limit_ephemeral_ports(monkeypatch: pytest.MonkeyPatch, ports: range) -> None:
    """Let stacks choose local ports from these only."""
    monkeypatch.setattr(stack, "_EPHEMERAL", ports)


def queued_timers(stack: TcpStack) -> int:
    """Return the length of the timer queue, including obsolete entries."""
    return len(stack.scheduler._timers)


def remaining(stack: TcpStack) -> dict[str, int]:
    """Return the number of each kind of object that a stack still holds: zero once all connections are closed."""
    return {
        "connections": len(stack.connections),
        "time-waits": len(stack._time_waits),
        "ports": len(+stack._local_ports),
        "timers": sum(timer[0] == timer[2].scheduled_at for timer in stack.scheduler._timers),
        "ready": len(stack.scheduler._ready),
    }


def send_memory(buffer: SendBuffer) -> int:
    """Return the bytes of memory that a send buffer occupies."""
    return len(buffer._memory)


def receive_memory(receive: ReceiveState) -> int:
    """Return the bytes of memory that a receive buffer occupies."""
    return len(receive._chunk)


def copied_out(connection: Connection) -> int:
    """Return how many zero-copy bytes a connection has copied so that the writer had its memory back."""
    return connection.snd.buffer.zerocopy.copied_out


def tag_ranges(buffer: SendBuffer) -> int:
    """Return how many tagged ranges a send buffer remembers."""
    return buffer.tags_count


def reordering_window_multiplier(connection: Connection) -> int:
    """Return RACK.reo_wnd_mult (RFC 8985) of a connection."""
    return connection.rack._multiplier


def set_reordering_window(connection: Connection, multiplier: int, persist: int) -> None:
    """Set RACK.reo_wnd_mult and RACK.reo_wnd_persist (RFC 8985) of a connection."""
    connection.rack._multiplier, connection.rack._persist = multiplier, persist
