"""Ethernet II headers (IEEE 802.3, section 3.2.6), without FCS, for ARP and ICMP; those of TCP are made in C."""

from __future__ import annotations

from typing import NamedTuple

HEADER_LENGTH = 14
BROADCAST = b"\xff" * 6
TYPE_IPV4 = 0x0800
TYPE_ARP = 0x0806
_NODE_PREFIX = b"\x02\x53\x4e"


class ParseError(ValueError):
    """The bytes are not a valid packet; the text says why."""


class Ethernet(NamedTuple):
    destination: bytes
    source: bytes
    ethertype: int
    payload: bytes


def mac_of(ip: int) -> bytes:
    """Returns the MAC address of the node with this address: locally administered, so peers can derive it."""
    return _NODE_PREFIX + (ip & 0xFFFFFF).to_bytes(3, "big")


def parse(frame: bytes) -> Ethernet:
    """Raises ParseError for a frame that is shorter than its header."""
    if len(frame) < HEADER_LENGTH:
        raise ParseError(f"an Ethernet frame of {len(frame)} bytes")
    return Ethernet(frame[:6], frame[6:12], int.from_bytes(frame[12:14], "big"), frame[HEADER_LENGTH:])


def build(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    return destination + source + ethertype.to_bytes(2, "big") + payload
