"""The TCP segment as stack and NIC hand it to each other.

A segment going down may be a super-segment, many MSS long; one coming up may have been joined from several
frames. Its sequence numbers always count original bytes. Nothing here is unparsed: the NIC makes segments only
from frames that passed every check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, NamedTuple, Protocol


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
    """What a range of a stream is tagged with. A tag whose ToS selects no offload means plain bytes."""

    tos: int = 0
    codec: str | None = None
    """As in `bounded:10`; None for the one that the NIC's table has for this ToS."""


PLAIN = Tag()
ECN_BITS = 3
"""Of a ToS (RFC 3168, section 5)."""
_NOTHING = memoryview(b"")


@dataclass(slots=True)
class Options:
    """The options of a SYN or SYN-ACK. Timestamps, on every segment, stand in the segment itself."""

    mss: int | None = None
    window_scale: int | None = None
    sack_permitted: bool = False
    codecs: int | None = None
    """The NIC option of FORMAT.md: bitmap of codecs the sender can decode. Only NICs write it; to TCP it says
    whether the peer has such a NIC at all."""
    remembered: bool = True
    """Going down: this end will know of the connection. If not, the NIC offers nothing, and forgets it too."""


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
    """What has come out of order (RFC 2018): the first sequence number of each block, and the one behind its last."""
    codec: str | None = None
    """Going down: the tag's codec override."""
    block_offset: int = 0
    """Going down: offset of the payload's first byte from its tagged range's start, modulo 64."""
    frames: int = 1
    """Coming up: the frames it came in."""
    path_mtu: int = 0
    """Going down: IPv4 bytes that a frame to the peer may have; 0: as many as the link carries."""


class Transmitted(NamedTuple):
    """What became of a segment handed down."""

    consumed: int
    """Original bytes that left; fewer than the payload when the frame budget ran out."""
    frames: int
    wire_bytes: int
    """Ethernet bytes of these frames."""
    packet_id: int = 0
    """The number that the NIC gave this segment; its frames carry it too."""


class Transmitter(Protocol):
    """The NIC as TCP sees it; a capture tap may stand before it."""

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        """Cuts, encodes and sends a segment to a MAC address, at most `max_frames` frames of it.

        PSH and FIN go only with the last original byte: a segment taken in part carries neither.
        """
