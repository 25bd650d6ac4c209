"""ARP packets (RFC 826)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from softnic.packet.ethernet import ParseError

REQUEST = 1
REPLY = 2
_PACKET = struct.Struct("!HHBBH6sI6sI")
_ETHERNET = 1
_IPV4 = 0x0800


class Arp(NamedTuple):
    operation: int
    sender_mac: bytes
    sender_ip: int
    target_mac: bytes
    target_ip: int


def parse(payload: bytes) -> Arp:
    """Raises ParseError for anything but an Ethernet/IPv4 request or reply from a unicast MAC address."""
    if len(payload) < _PACKET.size:
        raise ParseError("an ARP packet cut short")
    hardware, protocol, hardware_size, protocol_size, *fields = _PACKET.unpack_from(payload)
    packet = Arp(*fields)
    if (hardware, protocol, hardware_size, protocol_size) != (_ETHERNET, _IPV4, 6, 4):
        raise ParseError("an ARP packet that is not about Ethernet and IPv4")
    if packet.operation not in (REQUEST, REPLY) or packet.sender_mac[0] & 1:
        raise ParseError("an ARP packet with a wrong operation or sender")
    return packet


def build(packet: Arp) -> bytes:
    return _PACKET.pack(_ETHERNET, _IPV4, 6, 4, *packet)
