"""Packets as the stack reads and builds them: Ethernet, ARP, IPv4, ICMP, TCP headers, lists of frames."""

from __future__ import annotations

from softnic.packet import arp, ethernet, icmp, ipv4
from softnic.packet.ethernet import ParseError, mac_of
from softnic.packet.frames import HEADROOM, Frames
from softnic.packet.headers import (
    HEADER_BYTES,
    MAX_SCALE,
    TIMESTAMP_BYTES,
    pack_headers,
    pack_options,
    parse_options,
    unpack_sacks,
)
from softnic.packet.ipv4 import checksum
from softnic.packet.segment import PLAIN, Flags, Options, Segment, Tag, Transmitted

__all__ = [
    "HEADER_BYTES",
    "HEADROOM",
    "MAX_SCALE",
    "PLAIN",
    "TIMESTAMP_BYTES",
    "Flags",
    "Frames",
    "Options",
    "ParseError",
    "Segment",
    "Tag",
    "Transmitted",
    "arp",
    "checksum",
    "ethernet",
    "icmp",
    "ipv4",
    "mac_of",
    "pack_headers",
    "pack_options",
    "parse_options",
    "unpack_sacks",
]
