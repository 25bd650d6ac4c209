"""What one connection can tell about itself."""

from __future__ import annotations

from dataclasses import dataclass

from softnic.stack.segment import Tag


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
    receive_queue: int
    """Received in order and not consumed."""
    retransmits: int
    """Segments sent again, by timeout or fast retransmit."""
    srtt: float
    rttvar: float
    rto: float
    congestion: str
    """Name of the algorithm."""
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
