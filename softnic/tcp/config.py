"""Options of TCP, with their defaults and the reasons for them."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_WINDOW = 0xFFFF << 14
"""Largest window with the largest scale, 1 GiB (RFC 7323, section 2.3)."""


@dataclass(frozen=True, slots=True)
class TcpConfig:
    """Times in seconds, sizes in original bytes unless stated."""

    mtu: int = 1500
    """Bytes of IPv4 in a frame; the MSS option says 40 less."""
    send_buffer: int = 4 << 20
    send_buffer_max: int = 256 << 20
    receive_buffer: int = 1 << 20
    receive_buffer_max: int = 256 << 20
    """Initial and maximum sizes of buffers (autotune.py). A full-sized frame of a compressed stream may represent
    300 KB, so windows are large; only a slow reader occupies as much memory. At most `LARGEST_WINDOW`."""
    buffer_memory: int = 1 << 30
    """Limit of the growth of all buffers of a node; includes out-of-order data, which is dropped first (budget.py)."""
    super_segment: int = 1024 << 10
    """Limit of the payload passed to the NIC in one segment."""
    congestion: str = "auto"
    """Algorithm of new connections, one of `algorithms.ALGORITHMS`."""
    initial_rto_s: float = 1.0
    min_rto_s: float = 0.2
    """RFC 6298 says 1 s; 200 ms as in Linux, because a LAN's round trip is below one."""
    max_rto_s: float = 60.0
    ack_delay_s: float = 0.01
    """Limit of the delay of an ACK (RFC 9293 allows 0.5 s; Linux waits 40 ms)."""
    syn_retries: int = 5
    """Retransmissions of a SYN or SYN-ACK: 1, 3, 7, 15 and 31 s after the first; given up after 63 s."""
    user_timeout_s: float = 60.0
    """Data unacknowledged for this time ends a connection with ETIMEDOUT (RFC 9293, section 3.9.1.1)."""
    peer_timeout_s: float | None = None
    """Silence of a node that ends connections to it, idle ones too (liveness.py); None: never."""
    time_wait_s: float = 60.0
    """2 MSL, with an MSL of 30 s, as in Linux."""
    orphan_timeout_s: float = 60.0
    """Limit of the time without progress of a closed connection, FIN-WAIT-2 included."""
    half_open_limit: int = 128
    """Limit of the half-open connections of a listener (its backlog, if that is larger)."""
    max_time_waits: int = 4096
    max_out_of_order: int = 4096
    """Limit of the chunks of a connection's out-of-order data."""
    gap_s: float = 8.0
    """Out-of-order data is dropped if the gap before it did not shrink for this time. A live sender retransmits it."""
    trim_after_s: float = 10.0
    """Idle time after which a connection returns the memory of its empty buffers."""

    fast_path: bool = True
    """The steps of loss-free connections are taken in C. Tests compare them with the decisions in Python, which can
    take every segment."""

    def __post_init__(self) -> None:
        for size, most in ((self.send_buffer, self.send_buffer_max), (self.receive_buffer, self.receive_buffer_max)):
            if not 0 < size <= LARGEST_WINDOW or most > LARGEST_WINDOW:
                raise ValueError(f"a buffer has 1 to {LARGEST_WINDOW} bytes")

    @property
    def window_scale(self) -> int:
        """The smallest scale for the maximum receive buffer (RFC 7323, section 2.2)."""
        largest = max(self.receive_buffer, self.receive_buffer_max)
        return ((largest - 1) // 0xFFFF).bit_length()
