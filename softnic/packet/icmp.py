"""ICMP (RFC 792): echo requests and replies, and errors about sent packets.

Errors are destination unreachable, time exceeded and parameter problem, each with the start of the packet in question
(RFC 1122, section 3.2.2). Source quench is obsolete (RFC 6633), and a node has no routes to redirect.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from softnic.packet.ethernet import ParseError
from softnic.packet.ipv4 import HEADER_LENGTH, PROTOCOL_TCP, checksum

ECHO_REPLY = 0
UNREACHABLE = 3
ECHO_REQUEST = 8
TIME_EXCEEDED = 11
PARAMETER_PROBLEM = 12
PROTOCOL_UNREACHABLE = 2
PORT_UNREACHABLE = 3
FRAGMENTATION_NEEDED = 4
"""Codes of UNREACHABLE."""
_HEADER = struct.Struct("!BBHHH")
_QUOTED = struct.Struct("!BxHxxxxxBxxII")
_PORTS = struct.Struct("!HHI")


class Echo(NamedTuple):
    kind: int
    identifier: int
    sequence: int
    data: bytes


class Problem(NamedTuple):
    """Error of a host or router about a TCP segment, which is quoted up to its sequence number."""

    kind: int
    code: int
    mtu: int
    """MTU of the next hop if fragmentation was needed; 0: not reported (RFC 1191, section 4)."""
    length: int
    """IPv4 bytes of the packet in question."""
    src: int
    dst: int
    sport: int
    dport: int
    seq: int


def parse(payload: bytes) -> Echo | Problem:
    """Raises ParseError for anything but an echo request, its reply, or an error about a TCP segment."""
    if len(payload) < _HEADER.size:
        raise ParseError("an ICMP message cut short")
    kind, code, _, identifier, sequence = _HEADER.unpack_from(payload)
    if checksum(payload):
        raise ParseError("an ICMP message with a wrong checksum")
    if kind in (UNREACHABLE, TIME_EXCEEDED, PARAMETER_PROBLEM):
        return _problem(kind, code, sequence, payload[_HEADER.size :])
    if kind not in (ECHO_REQUEST, ECHO_REPLY) or code:
        raise ParseError(f"ICMP type {kind}, code {code}")
    return Echo(kind, identifier, sequence, payload[_HEADER.size :])


def _problem(kind: int, code: int, mtu: int, quoted: bytes) -> Problem:
    """Parses an error. The quoted header's checksum is ignored: routers change the header."""
    if len(quoted) < HEADER_LENGTH:
        raise ParseError("an ICMP error that quotes no packet")
    first, length, protocol, src, dst = _QUOTED.unpack_from(quoted)
    header = (first & 15) * 4
    if first >> 4 != 4 or header < HEADER_LENGTH or len(quoted) < header + _PORTS.size:
        raise ParseError("an ICMP error that quotes a packet cut short")
    if protocol != PROTOCOL_TCP:
        raise ParseError(f"an ICMP error about protocol {protocol}")
    mtu = mtu if (kind, code) == (UNREACHABLE, FRAGMENTATION_NEEDED) else 0
    return Problem(kind, code, mtu, length, src, dst, *_PORTS.unpack_from(quoted, header))


def build(echo: Echo) -> bytes:
    return _summed(_HEADER.pack(echo.kind, 0, 0, echo.identifier, echo.sequence) + echo.data)


def unreachable(code: int, packet: bytes) -> bytes:
    """Returns an "unreachable" about a received packet: quotes its header and 8 more bytes (RFC 792)."""
    header = (packet[0] & 15) * 4
    return _summed(_HEADER.pack(UNREACHABLE, code, 0, 0, 0) + packet[: header + 8])


def _summed(body: bytes) -> bytes:
    return body[:2] + checksum(body).to_bytes(2, "big") + body[4:]
