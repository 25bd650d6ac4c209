"""ICMP echo (RFC 792): the one kind of ICMP that a node answers and sends."""

from __future__ import annotations

import struct
from typing import NamedTuple

from softnic.stack.ethernet import ParseError
from softnic.stack.ipv4 import checksum

ECHO_REPLY = 0
ECHO_REQUEST = 8
_HEADER = struct.Struct("!BBHHH")


class Echo(NamedTuple):
    kind: int
    identifier: int
    sequence: int
    data: bytes


def parse(payload: bytes) -> Echo:
    """Raises ParseError for anything but a well-formed echo request or reply."""
    if len(payload) < _HEADER.size:
        raise ParseError("an ICMP message cut short")
    kind, code, _, identifier, sequence = _HEADER.unpack_from(payload)
    if checksum(payload):
        raise ParseError("an ICMP message with a wrong checksum")
    if kind not in (ECHO_REQUEST, ECHO_REPLY) or code:
        raise ParseError(f"ICMP type {kind}, code {code}")
    return Echo(kind, identifier, sequence, payload[_HEADER.size :])


def build(echo: Echo) -> bytes:
    body = _HEADER.pack(echo.kind, 0, 0, echo.identifier, echo.sequence) + echo.data
    return body[:2] + checksum(body).to_bytes(2, "big") + body[4:]
