"""The numbers of a connection by the names of RFCs and Linux: `flow(connection).cwnd`."""

from __future__ import annotations

from softnic._fields import ConnectionFields, ReceiveFields, SendFields
from softnic._native import ffi, lib
from softnic.tcp.congestion import Congestion
from softnic.tcp.connection import Connection
from softnic.tcp.rcv import ReceiveState
from softnic.tcp.reassembly import Reassembly
from softnic.tcp.rto import RetransmissionTimeout
from softnic.tcp.scoreboard import Scoreboard
from softnic.tcp.send_buffer import SendBuffer

__all__ = ["FlowMemory", "FlowView", "flow"]


class _Send(SendFields):
    __slots__ = ()

    snd_una: int
    snd_nxt: int


class _Receive(ReceiveFields):
    __slots__ = ()

    unread: int


class _Connection(ConnectionFields):
    __slots__ = ()

    established: bool
    writable: bool


class FlowMemory:
    """The numbers of an established connection without a stack, and what it has received."""

    def __init__(self, capacity: int) -> None:
        connection = _Connection()
        memory = connection.memory
        self.connection = connection
        connection.established = connection.writable = True
        self.c = ffi.cast("sn_flow *", memory.address)
        self.received = lib.sn_flow_receive_buffer(self.c)
        self.send_buffer = SendBuffer(capacity, memory=memory)
        self.send, self.receive = _Send(memory=memory), _Receive(memory=memory)
        self.send.snd_una = self.send.snd_nxt = 1

    def keep(self, data: memoryview) -> None:
        """Have received bytes."""
        assert not lib.sn_receive_buffer_append(self.received, ffi.from_buffer(data), len(data))
        self.receive.unread += len(data)


class FlowView:
    """The state of a connection under the names of RFCs; only this class knows where each field is stored."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def cwnd(self) -> int:
        """The congestion window, in bytes on the wire."""
        return self._connection.congestion.cwnd

    @cwnd.setter
    def cwnd(self, value: int) -> None:
        self._connection.congestion.cwnd = value

    @property
    def ssthresh(self) -> float:
        """The slow-start threshold, in bytes on the wire."""
        return self._connection.congestion.ssthresh

    @property
    def smss(self) -> int:
        """The bytes on the wire of a full frame."""
        return self._connection.congestion.smss

    @property
    def congestion_name(self) -> str:
        """The name of the congestion control."""
        return self._connection.congestion.name

    @property
    def congestion(self) -> Congestion:
        """The congestion control."""
        return self._connection.congestion

    @property
    def mss(self) -> int:
        """The largest payload of a frame to the peer."""
        return self._connection.snd.mss

    @property
    def send_buffer(self) -> SendBuffer:
        """The data that are not acknowledged or not sent."""
        return self._connection.snd.buffer

    @property
    def scoreboard(self) -> Scoreboard:
        """The ranges that are in flight."""
        return self._connection.snd.scoreboard

    @property
    def iss(self) -> int:
        """The initial send sequence number (RFC 9293)."""
        return self._connection.snd.iss

    @property
    def snd_una(self) -> int:
        """The position of the oldest unacknowledged byte."""
        return self._connection.snd.snd_una

    @property
    def snd_nxt(self) -> int:
        """The position of the next byte to send."""
        return self._connection.snd.snd_nxt

    @property
    def snd_wnd(self) -> int:
        """The window that the peer offers."""
        return self._connection.snd.snd_wnd

    @property
    def send_scale(self) -> int:
        """The scale of windows that the peer offers."""
        return self._connection.snd.scale

    @property
    def fin_acknowledged(self) -> bool:
        """Whether the peer has acknowledged the FIN."""
        return self._connection.snd.fin_acknowledged

    @property
    def receive_buffer(self) -> ReceiveState:
        """The data that are not read."""
        return self._connection.rcv

    @property
    def unread(self) -> int:
        """The bytes that have come in order and are not read."""
        return self._connection.rcv.unread

    @property
    def out_of_order(self) -> list[tuple[int, memoryview]]:
        """The out-of-order data: position and bytes of each piece."""
        return self._connection.rcv.waiting

    @property
    def receive_capacity(self) -> int:
        """The bytes that the receive buffer may hold."""
        return self._connection.rcv.capacity

    @property
    def rcv_adv(self) -> int:
        """The right edge of the window that was offered."""
        return self._connection.rcv.rcv_adv

    @property
    def receive_scale(self) -> int:
        """The scale of windows that are offered."""
        return self._connection.rcv.scale

    @property
    def rto_estimator(self) -> RetransmissionTimeout:
        """The estimator of the retransmission timeout."""
        return self._connection.rtt

    @rto_estimator.setter
    def rto_estimator(self, value: RetransmissionTimeout) -> None:
        value.move_to(self._connection.memory)
        self._connection.rtt = value

    @property
    def srtt(self) -> float:
        """The smoothed round-trip time."""
        return self._connection.rtt.srtt

    @srtt.setter
    def srtt(self, value: float) -> None:
        self._connection.rtt.srtt = value

    @property
    def latest_rtt(self) -> float:
        """The last measured round-trip time."""
        return self._connection.rtt.latest

    @latest_rtt.setter
    def latest_rtt(self, value: float) -> None:
        self._connection.rtt.latest = value

    @property
    def rto(self) -> float:
        """The retransmission timeout."""
        return self._connection.rtt.rto

    @property
    def rto_backoff(self) -> int:
        """The number of times that the timeout was doubled."""
        return self._connection.rtt.backoff

    @property
    def rack_rtt(self) -> float:
        """The round-trip time that RACK goes by."""
        return self._connection.rack.rtt

    @rack_rtt.setter
    def rack_rtt(self, value: float) -> None:
        self._connection.rack.rtt = value

    @property
    def in_recovery(self) -> bool:
        """Whether losses are being recovered from."""
        return self._connection.recovery.is_fast

    @property
    def recovery_is_over(self) -> bool:
        """Whether no loss is known."""
        return self._connection.recovery.is_open

    @property
    def pacing_rate(self) -> float | None:
        """The pacing rate, in bytes a second."""
        return self._connection.pacer.rate

    @property
    def pacing_timer(self) -> float:
        """When pacing lets the next segment leave."""
        return self._connection.pacing_timer

    @property
    def pto(self) -> float:
        """When a tail loss probe leaves (RFC 8985)."""
        return self._connection.pto

    @property
    def soft_error(self) -> tuple[int, str] | None:
        """The error that ARP or ICMP reported since the peer was last heard."""
        return self._connection.soft_error


def flow(connection: Connection) -> FlowView:
    """Return a view of the numbers of a connection."""
    return FlowView(connection)


def taken(reassembly: Reassembly, position: int) -> bytes:
    """Takes what follows on `position` up to the next gap."""
    c = ffi.cast("sn_reassembly *", reassembly.address)
    buffer = ffi.new("sn_receive_buffer *")
    data = bytearray(lib.sn_reassembly_take(c, position))
    lib.sn_reassembly_deliver(c, buffer)
    lib.sn_receive_buffer_read(buffer, ffi.from_buffer(data), len(data))
    return bytes(data)
