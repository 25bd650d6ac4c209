"""Everything about TCP that one may want to set, with its default and where that comes from."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_WINDOW = 0xFFFF << 14
"""What the window field can say with the largest scale, 1 GiB (RFC 7323, section 2.3)."""


@dataclass(frozen=True, slots=True)
class TcpConfig:
    """Times in seconds, sizes in original bytes where nothing else is said."""

    mtu: int = 1500
    """Bytes of IPv4 in a frame; the MSS option says 40 less."""
    send_buffer: int = 4 << 20
    send_buffer_max: int = 64 << 20
    receive_buffer: int = 1 << 20
    receive_buffer_max: int = 64 << 20
    """Buffers begin with the one size and grow to the other where path and program use so much (autotune.py). A
    full-sized frame of a compressed stream may stand for 300 KB of it, so windows are large. Only a reader who falls
    behind has so much memory taken. At most `LARGEST_WINDOW`."""
    buffer_memory: int = 1 << 30
    """By which all buffers of a node together may have grown, out-of-order data included, which is dropped first when
    there is no more (budget.py)."""
    super_segment: int = 1024 << 10
    """Payload handed to the NIC in one piece, at most."""
    congestion: str = "cubic"
    """The algorithm of new connections, one of `algorithms.ALGORITHMS`."""
    initial_rto_s: float = 1.0
    min_rto_s: float = 0.2
    """RFC 6298 says 1 s; 200 ms as in Linux, because a LAN's round trip is below one."""
    max_rto_s: float = 60.0
    ack_delay_s: float = 0.01
    """An ACK waits for data to carry it no longer than this (RFC 9293 allows 0.5 s; Linux waits 40 ms)."""
    syn_retries: int = 5
    """SYN or SYN-ACK again 1, 3, 7, 15 and 31 s after the first; given up after 63 s."""
    user_timeout_s: float = 60.0
    """Unacknowledged data for so long ends a connection with ETIMEDOUT (RFC 9293, section 3.9.1.1)."""
    peer_timeout_s: float | None = None
    """Connections to a node that has been silent for so long end, idle ones too (liveness.py); None: they do not."""
    time_wait_s: float = 60.0
    """2 MSL, with an MSL of 30 s, as in Linux."""
    orphan_timeout_s: float = 60.0
    """A connection that nobody owns any more and that makes no progress, FIN-WAIT-2 included, ends after this."""
    half_open_limit: int = 128
    """SYN-RECEIVED connections of one listener, at most (its backlog, where that is more)."""
    max_time_waits: int = 4096
    max_out_of_order: int = 4096
    """Pieces in one connection's reassembly queue."""
    gap_s: float = 8.0
    """Out-of-order data is dropped when nothing of the gap before it has arrived for this time. A sender that
    lives sends it again."""
    trim_after_s: float = 10.0
    """A connection that nothing was sent or received on for so long gives the memory of its empty buffers back."""

    def __post_init__(self) -> None:
        for size, most in ((self.send_buffer, self.send_buffer_max), (self.receive_buffer, self.receive_buffer_max)):
            if not 0 < size <= LARGEST_WINDOW or most > LARGEST_WINDOW:
                raise ValueError(f"a buffer has 1 to {LARGEST_WINDOW} bytes")

    @property
    def window_scale(self) -> int:
        """With which the window field can say all that the receive buffer may become (RFC 7323, section 2.2)."""
        largest = max(self.receive_buffer, self.receive_buffer_max)
        return ((largest - 1) // 0xFFFF).bit_length()
