"""Snapshot of a connection's state, for TCP_INFO and `softnic stat`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from softnic.packet.segment import Tag
from softnic.tcp.algorithms import name_in_use
from softnic.tcp.flow import Flow


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """Times in seconds; bytes are original bytes unless they say wire."""

    state: str
    """The RFC 9293 name."""
    local: tuple[int, int]
    peer: tuple[int, int]
    error: int
    error_message: str
    tag: Tag
    """Of the next byte to be written."""
    bytes_sent: int
    """Acknowledged by the peer."""
    bytes_received: int
    wire_bytes_sent: int
    """Frames, retransmissions included."""
    frames_sent: int
    frames_received: int
    send_queue: int
    """Written and not acknowledged."""
    notsent: int
    """Written and never sent."""
    receive_queue: int
    """Received in order and not consumed."""
    retransmits: int
    """Segments sent again, by timeout or fast retransmit."""
    srtt: float
    min_rtt: float
    """Least round trip of the last minutes; 0 before the first sample."""
    rttvar: float
    rto: float
    congestion: str
    """Name of the algorithm, as `algorithms.name_in_use`."""
    cwnd: int
    """Wire bytes."""
    ssthresh: int
    """Wire bytes; as large as 1 << 40 before the first loss."""
    flight: int
    """Wire bytes on their way."""
    mss: int
    snd_wnd: int
    rcv_wnd: int
    silent_s: float
    """Since the peer was last heard."""


def info_of(c: Flow, now: float) -> ConnectionInfo:
    snd, rcv = c.snd, c.rcv
    return ConnectionInfo(
        state=c.state.value,
        local=c.local,
        peer=c.peer,
        error=c.error,
        error_message=c.error_message,
        tag=c.snd.buffer.last_tag,
        bytes_sent=max(0, min(snd.snd_una, snd.buffer.end) - 1),
        bytes_received=rcv.bytes_received,
        wire_bytes_sent=c.wire_bytes_sent,
        frames_sent=c.frames_sent,
        frames_received=c.frames_received,
        send_queue=max(0, snd.buffer.end - max(1, snd.snd_una)),
        notsent=max(0, snd.buffer.end - max(1, snd.snd_nxt)),
        receive_queue=rcv.unread,
        retransmits=c.retransmits,
        srtt=c.rtt.srtt,
        min_rtt=0.0 if math.isinf(least := c.rack.minimum.least) else least,
        rttvar=c.rtt.rttvar,
        rto=c.rtt.rto,
        congestion=name_in_use(c.congestion),
        cwnd=c.congestion.cwnd,
        ssthresh=c.congestion.ssthresh,
        flight=snd.scoreboard.pipe,
        mss=snd.mss,
        snd_wnd=snd.snd_wnd,
        rcv_wnd=rcv.rcv_wnd,
        silent_s=now - c.last_heard,
    )
