"""TCP segments as TCP and the NIC exchange them.

A sent segment may be a super-segment, many MSS long; a received one may have been joined from several frames. Sequence
numbers always count original bytes. The NIC makes segments only from frames that passed every check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, NamedTuple, Protocol, runtime_checkable

from softnic.packet.ipv4 import DEFAULT_TTL


class Flags(IntFlag):
    """The TCP control bits (RFC 9293, section 3.1)."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20
    ECE = 0x40
    CWR = 0x80


class Tag(NamedTuple):
    """Tag of a range of a stream. A tag whose ToS selects no offload means plain bytes."""

    tos: int = 0
    codec: str | None = None
    """For example `bounded:10`; None: the codec of the NIC's table for this ToS."""


PLAIN = Tag()
ECN_BITS = 3
"""The ECN bits of a ToS (RFC 3168, section 5)."""
_NOTHING = memoryview(b"")


@dataclass(slots=True)
class Options:
    """Options of a SYN or SYN-ACK. Timestamps, which every segment has, are fields of the segment."""

    mss: int | None = None
    window_scale: int | None = None
    sack_permitted: bool = False
    codecs: int | None = None
    """The NIC option of FORMAT.md: bitmap of the codecs that the sender's NIC decodes; None: it has no such NIC."""
    remembered: bool = True
    """Sent: this end keeps state of the connection. If not, the NIC offers no codecs."""


@dataclass(slots=True)
class Segment:
    """Addresses and numbers are integers in host order; `window` is the field as sent, not scaled."""

    src: int
    dst: int
    sport: int
    dport: int
    seq: int
    ack: int = 0
    flags: int = 0
    window: int = 0
    tos: int = 0
    timestamps: tuple[int, int] | None = None
    """TSval and TSecr (RFC 7323)."""
    options: Options | None = None
    payload: memoryview = _NOTHING
    flow: Any = field(default=None, compare=False, repr=False)
    """The connection's state (`softnic.tcp.flow.Flow`), where it is known; None: it is still to be looked up."""
    sacks: tuple[tuple[int, int], ...] = ()
    """SACK blocks (RFC 2018): the first sequence number of each, and the one behind its last."""
    codec: str | None = None
    """Sent: the tag's codec."""
    block_offset: int = 0
    """Sent: offset of the payload from the start of its tagged range, modulo 512."""
    ttl: int = DEFAULT_TTL
    """Sent: time to live of its packets."""
    frames: int = 1
    """Received: the number of its frames."""
    path_mtu: int = 0
    """Sent: limit of the IPv4 bytes of a frame; 0: the link's."""
    again: bool = False
    """Sent: the payload was sent before."""


class Transmitted(NamedTuple):
    """Result of transmitting a segment."""

    consumed: int
    """Original bytes sent; fewer than the payload if the frame budget ran out."""
    frames: int
    wire_bytes: int
    """Ethernet bytes of these frames."""
    packet_id: int = 0
    """Number of the segment, which its frames carry too."""


@runtime_checkable
class OutputTransmitter(Protocol):
    """A NIC that can do without segments."""

    def transmit_output(self, flow: Any, out: Any, destination: bytes, now: float) -> Transmitted:
        """As `Transmitter.transmit`, for an `sn_output` of a flow (native/tcp/fast_path.h)."""


class Transmitter(Protocol):
    """The NIC as TCP sees it."""

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        """Cuts, encodes and sends a segment to a MAC address, in at most `max_frames` frames.

        Only the last original byte carries PSH and FIN: a segment sent in part has neither.
        """
