"""The TCP stack: a host, its connections and listeners, and the parts of its congestion control and recovery."""

from __future__ import annotations

from softnic.stack.counters import StackCounters
from softnic.stack.host import Host
from softnic.stack.liveness import QUIET_S
from softnic.stack.tcp import isn, send_buffer, seq, timers
from softnic.stack.tcp.algorithms import ALGORITHMS
from softnic.stack.tcp.autotune import Budget, ReceiveTuning, SendTuning
from softnic.stack.tcp.bbr import Bbr
from softnic.stack.tcp.bbr import Mode as BbrMode
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
    "isn",
    "send_buffer",
    "seq",
    "stamp",
    "timers",
    "update_mss",
]
