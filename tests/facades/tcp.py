"""The TCP stack: a host, its connections and listeners, and the parts of its congestion control and recovery."""

from __future__ import annotations

import pytest

from softnic.stack.counters import StackCounters
from softnic.stack.host import Host
from softnic.stack.liveness import QUIET_S
from softnic.stack.tcp import isn, layer, seq
from softnic.stack.tcp.algorithms import ALGORITHMS
from softnic.stack.tcp.autotune import ReceiveTuning, SendTuning
from softnic.stack.tcp.bbr import Bbr
from softnic.stack.tcp.bbr import Mode as BbrMode
from softnic.stack.tcp.budget import Budget
from softnic.stack.tcp.config import LARGEST_WINDOW, TcpConfig
from softnic.stack.tcp.congestion import Congestion
from softnic.stack.tcp.connection import Connection
from softnic.stack.tcp.cubic import BETA, Cubic
from softnic.stack.tcp.delayed_ack import NEVER, DelayedAck
from softnic.stack.tcp.events import Closed, EchoReply, Established, Event, PeerFound, PeerLost, Readable, Writable
from softnic.stack.tcp.events import Incoming as AcceptReady
from softnic.stack.tcp.flight import LOST, OUT, SACKED, Ack
from softnic.stack.tcp.flight import Flight as Scoreboard
from softnic.stack.tcp.flight import Record as SentRange
from softnic.stack.tcp.hystart import HyStart
from softnic.stack.tcp.layer import Tcp as TcpStack
from softnic.stack.tcp.listener import Listener
from softnic.stack.tcp.pacing import Pacer
from softnic.stack.tcp.path_mtu import LEAST_PATH_MTU, LIFETIME_S, PathMtus
from softnic.stack.tcp.path_mtu import fit as update_mss
from softnic.stack.tcp.rack import MinimumRtt, Rack
from softnic.stack.tcp.rcv import Receive
from softnic.stack.tcp.reassembly import Reassembly
from softnic.stack.tcp.recovery import Recovery
from softnic.stack.tcp.reno import Reno
from softnic.stack.tcp.rto import RetransmissionTimeout
from softnic.stack.tcp.send_buffer import SendBuffer
from softnic.stack.tcp.state import State
from softnic.stack.tcp.syn_cookies import PERIOD_S, SynCookies, stamp

__all__ = [
    "ALGORITHMS",
    "BETA",
    "LARGEST_WINDOW",
    "LEAST_PATH_MTU",
    "LIFETIME_S",
    "LOST",
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
    "Cubic",
    "DelayedAck",
    "EchoReply",
    "Established",
    "Event",
    "Host",
    "HyStart",
    "Listener",
    "MinimumRtt",
    "Pacer",
    "PathMtus",
    "PeerFound",
    "PeerLost",
    "Rack",
    "Readable",
    "Reassembly",
    "Receive",
    "ReceiveTuning",
    "Recovery",
    "Reno",
    "RetransmissionTimeout",
    "Scoreboard",
    "SendBuffer",
    "SendTuning",
    "SentRange",
    "StackCounters",
    "State",
    "SynCookies",
    "TcpConfig",
    "TcpStack",
    "Writable",
    "forget_neighbours",
    "isn",
    "learn_neighbour",
    "limit_ephemeral_ports",
    "queued_timers",
    "receive_memory",
    "remaining",
    "reordering_window_multiplier",
    "send_memory",
    "seq",
    "set_reordering_window",
    "stamp",
    "tag_ranges",
    "update_mss",
]


def learn_neighbour(host: Host, ip: int, mac: bytes, now: float) -> None:
    """Let a host know the MAC of an address without asking."""
    host._neighbours.learn(ip, mac, now, unasked=True)


def forget_neighbours(host: Host) -> None:
    """Empty a host's ARP cache."""
    host._neighbours._entries.clear()


def limit_ephemeral_ports(monkeypatch: pytest.MonkeyPatch, ports: range) -> None:
    """Let stacks choose local ports from these only."""
    monkeypatch.setattr(layer, "_EPHEMERAL", ports)


def queued_timers(stack: TcpStack) -> int:
    """Return the length of the timer queue, with entries that no longer count."""
    return len(stack._timers)


def remaining(stack: TcpStack) -> dict[str, int]:
    """Return how many of each kind a stack still holds: nothing once all connections are over."""
    return {
        "connections": len(stack.connections),
        "time-waits": len(stack._time_waits),
        "ports": len(+stack._local_ports),
        "timers": sum(timer[0] == timer[2].scheduled_at for timer in stack._timers),
        "ready": len(stack._ready),
    }


def send_memory(buffer: SendBuffer) -> int:
    """Return the bytes of memory that a send buffer occupies."""
    return len(buffer._memory)


def receive_memory(receive: Receive) -> int:
    """Return the bytes of memory that a receive buffer occupies."""
    return len(receive._chunk)


def tag_ranges(buffer: SendBuffer) -> int:
    """Return how many tagged ranges a send buffer remembers."""
    return len(buffer._pieces)


def reordering_window_multiplier(connection: Connection) -> int:
    """Return RACK.reo_wnd_mult (RFC 8985) of a connection."""
    return connection.rack._multiplier


def set_reordering_window(connection: Connection, multiplier: int, persist: int) -> None:
    """Set RACK.reo_wnd_mult and RACK.reo_wnd_persist (RFC 8985) of a connection."""
    connection.rack._multiplier, connection.rack._persist = multiplier, persist
