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


class PeerWay(msgspec.Struct, frozen=True):
    """How frames reach another node."""

    peer: str
    """Its address."""
    address: str
    """HOST:PORT of its NIC, an IPv6 address in brackets."""
    family: str
    """IPv4 or IPv6."""
    relayed: bool = False
    """A relay is at the address."""
    relay: str = ""
    """Address of the node that relays; empty: a meeting server does, or nobody."""
    age: float = 0.0
    """Seconds since it was first heard there; 0: it is there by configuration."""
    moves: int = 0
    """How often it has moved to another address."""
    key: str = ""
    """First 8 characters of the public key that it is known by; empty: by none."""


class MeetingInfo(msgspec.Struct, frozen=True):
    """The job whose nodes a NIC meets."""

    nodes: int
    """Nodes of the job."""
    known: int
    """Nodes that have registered, as far as this one knows, itself included."""
    number: int
    """Its own overlay number as the job has it; -1: not all nodes are known."""
    direct: int = 0
    """Nodes that are reached directly."""
    relayed: int = 0
    """Nodes that are reached by a relay."""
    waiting: list[str] = []
    """The first 32 nodes that are known and do not answer yet."""
    nat: str = ""
    """The kind of NAT in front of this host."""
    registered: bool = False
    """Whether a meeting server answers."""
    tcp: bool = False
    """Meeting servers are reached by TCP, because no UDP passes."""
    refusal: str = ""
    """Why all servers that answer refuse this node; empty: they do not."""


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
