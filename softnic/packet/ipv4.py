"""IPv4 headers (RFC 791): addresses, the checksum (RFC 1071), and the packets that carry ICMP.

Addresses are integers in host order here and in all other rooms; text only in user interfaces. Fragments are rejected
and options skipped; neither is sent.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from softnic._native import ffi, lib
from softnic.packet.ethernet import ParseError

HEADER_LENGTH = 20
PROTOCOL_ICMP = 1
PROTOCOL_TCP = 6
PROTOCOL_UDP = 17
DEFAULT_TTL = 64
_HEADER = struct.Struct("!BBHHHBBHII")
_DONT_FRAGMENT = 0x4000
_FRAGMENT_MASK = 0x3FFF  # more fragments, and the offset


def address(text: str) -> int:
    """The number of `10.77.0.1`. Raises ValueError."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and int(part) < 256 for part in parts):
        raise ValueError(f"{text!r} is not an IPv4 address")
    return int.from_bytes(bytes(int(part) for part in parts), "big")


def text(number: int) -> str:
    """The dotted form of an address."""
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def endpoint(address: tuple[int, int]) -> tuple[str, int]:
    """An address and port with the address in dotted form."""
    return text(address[0]), address[1]


def is_host(number: int) -> bool:
    """Whether an address may be another host's: not 0, loopback, multicast or reserved."""
    return 0 < number >> 24 < 224 and number >> 24 != 127


def is_loopback(number: int) -> bool:
    """Whether an address is a host's own: 127.0.0.0/8."""
    return number >> 24 == 127


def checksum(data: bytes) -> int:
    """Returns the internet checksum of bytes; 0 for bytes that contain their own valid checksum."""
    return int(lib.sn_checksum(ffi.from_buffer(data), len(data), 0))


class Packet(NamedTuple):
    src: int
    dst: int
    protocol: int
    payload: bytes
    ttl: int = DEFAULT_TTL
    tos: int = 0


def parse(data: bytes) -> Packet:
    """The packet at the start of `data`; what follows it (Ethernet padding) is ignored.

    Raises ParseError for wrong lengths, a wrong version or checksum, and for fragments.
    """
    if len(data) < HEADER_LENGTH:
        raise ParseError("an IPv4 header cut short")
    first, tos, total, _, fragment, ttl, protocol, _, src, dst = _HEADER.unpack_from(data)
    header = (first & 15) * 4
    if first >> 4 != 4 or header < HEADER_LENGTH or not header <= total <= len(data):
        raise ParseError("an IPv4 header with a wrong version or length")
    if checksum(data[:header]):
        raise ParseError("an IPv4 header with a wrong checksum")
    if fragment & _FRAGMENT_MASK:
        raise ParseError("a fragment")
    return Packet(src, dst, protocol, data[header:total], ttl, tos)


def build(packet: Packet, identification: int = 0) -> bytes:
    """Returns the bytes of a packet, at most 65535."""
    fields = [0x45, packet.tos, HEADER_LENGTH + len(packet.payload), identification, _DONT_FRAGMENT]
    header = _HEADER.pack(*fields, packet.ttl, packet.protocol, 0, packet.src, packet.dst)
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + packet.payload
