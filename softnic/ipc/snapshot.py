"""Parts of a NIC's statistics beside counters and streams: its process, its flows and collectives in sums.

`softnic stat`, `softnic top` and the metrics over HTTP read one snapshot, `control.NicStats`, of which these are parts.
`softnic stat --json` shows them as they are: docs/monitoring.md describes the fields, and a test compares the two.
"""

from __future__ import annotations

import msgspec


def dropped(counters: dict[str, int]) -> int:
    """Return how many frames, segments and datagrams a NIC has dropped, for any reason."""
    return sum(value for name, value in counters.items() if "drop" in name or name == "emulated_lost")


class ProcessInfo(msgspec.Struct, frozen=True):
    """The process of a NIC."""

    started: float = 0.0
    """Seconds since 1970."""
    uptime: float = 0.0
    """Seconds since the start, at the time of this snapshot. Rates are differences divided by differences of this."""
    cpu: float = 0.0
    """Seconds of CPU time used by all threads."""
    resident_bytes: int = 0
    """Memory that is not swapped out."""


class QueueTotals(msgspec.Struct, frozen=True):
    """What one queue of a NIC does."""

    queue: int
    """Number of the queue."""
    streams: int
    """Streams that it carries, listening ones with the first queue."""
    tx_wire_bytes: int
    """Bytes of frames sent."""
    rx_wire_bytes: int
    """Bytes of frames received."""
    rx_steered_frames: int
    """Frames that arrived here and were passed on to their own queue."""
    cpu: float
    """Seconds of CPU time used by its thread."""


class PeerTotals(msgspec.Struct, frozen=True):
    """Sums over the open connections to one node."""

    address: str
    """Empty: all nodes that have no entry of their own."""
    streams: int
    send_queue: int
    """Bytes accepted from applications and not acknowledged."""
    receive_queue: int
    """Bytes that applications have not read."""
    retransmits: int
    """Segments sent again."""
    srtt: float
    """Mean of the smoothed round-trip times in seconds; 0 if none was measured."""
    srtt_max: float


class StreamTotals(msgspec.Struct, frozen=True):
    """Sums over all streams of a NIC."""

    states: dict[str, int] = {}
    """Streams in each state that occurs."""
    peers: list[PeerTotals] = []
    """The nodes that streams are connected to: 32 of them, and one entry for all others."""


class CollectiveTotals(msgspec.Struct, frozen=True):
    """Sums over the collectives of a NIC."""

    in_progress: int = 0
    oldest: float = 0.0
    """Seconds since the oldest of them was posted; 0 if there is none."""
