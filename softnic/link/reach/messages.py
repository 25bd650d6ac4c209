"""Datagrams between nodes and meeting servers: a header, a MAC, and a body of msgpack (docs/FORMAT.md, "Meeting").

The MAC is checked before anything of the body is parsed. A parser returns a legal message or raises
MeetingMessageError.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
from functools import lru_cache
from typing import Annotated, ClassVar, get_args

import msgspec
from msgspec import Meta, Struct

from softnic import underlay
from softnic.link.reach.token import GRANT_BYTES, Bytes32
from softnic.underlay import IPV4, Address

FIRST_BYTE = 0x13
VERSION = 1
MOST_BYTES = 1200
"""Bytes of a datagram: every path of IPv6 carries it."""
CARD_BYTES = 768
"""Limit of a sealed card."""
LEAST_REQUEST_BYTES = 160
"""Requests are padded to this size, so that no answer to an unproven address is larger."""
COOKIE_BYTES = 16
_MAC_BYTES = 16
_GRANT_AT = 4
_MAC_AT = _GRANT_AT + GRANT_BYTES
HEADER_BYTES = _MAC_AT + _MAC_BYTES
_PORT = struct.Struct("!H")

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Port = Annotated[int, Meta(ge=1, le=0xFFFF)]
Cookie = Annotated[bytes, Meta(max_length=COOKIE_BYTES)]
SeenBytes = Annotated[bytes, Meta(max_length=18)]


class MeetingMessageError(ValueError):
    """A datagram that is no message; the text says why."""


class MeetingMessage(Struct, array_like=True, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a datagram. A derived class has its number in the header."""

    kind: ClassVar[int]


class RegisterNode(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A node is here. It also acknowledges what it has learned."""

    kind = 1
    key: Bytes32
    sequence: Natural
    """Greater in each message of a node, also after a restart."""
    cookie: Cookie
    epoch: Annotated[bytes, Meta(max_length=8)]
    known: Natural
    """The node has all entries of the epoch up to this revision."""
    card: Annotated[bytes, Meta(min_length=1, max_length=CARD_BYTES)]
    pad: bytes = b""


class ProbeNat(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A question about the NAT: which address is seen, or whether answers from elsewhere arrive."""

    kind = 2
    key: Bytes32
    sequence: Natural
    cookie: Cookie
    how: Annotated[int, Meta(ge=0, le=2)]
    """0: answer from here; 1: from the server's third port; 2: from its other address."""
    pad: bytes = b""


class AllocatePort(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A node asks for a port of the relay."""

    kind = 3
    key: Bytes32
    sequence: Natural
    cookie: Cookie
    pad: bytes = b""


class BindAddress(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A node is going to use the relay port that this is sent to."""

    kind = 4
    key: Bytes32
    sequence: Natural
    cookie: Cookie
    pad: bytes = b""


class LeaveJob(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The node ends: its place is free."""

    kind = 5
    key: Bytes32
    sequence: Natural
    cookie: Cookie
    pad: bytes = b""


class AddressChallenge(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The address is not proven: repeat the request with this cookie."""

    kind = 0x81
    echo: Natural
    """Sequence of the request."""
    cookie: Cookie
    seen: SeenBytes


class JobEntry(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What a server has of one node."""

    key: Bytes32
    card: Annotated[bytes, Meta(max_length=CARD_BYTES)]
    """Empty: the node has gone."""
    seen: Annotated[list[SeenBytes], Meta(max_length=4)]


class JobState(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """All entries of a job whose revision is in (since, until]; in answer to a RegisterNode, or unasked (echo 0)."""

    kind = 0x82
    echo: Natural
    cookie: Cookie
    seen: SeenBytes
    epoch: Annotated[bytes, Meta(min_length=8, max_length=8)]
    """Changes when the server restarts, or forgets the job."""
    since: Natural
    until: Natural
    latest: Natural
    """Revision of the job."""
    entries: Annotated[list[JobEntry], Meta(max_length=64)]


class NatProbed(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a ProbeNat."""

    kind = 0x83
    echo: Natural
    how: Annotated[int, Meta(ge=0, le=2)]
    seen: SeenBytes


class PortAllocated(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A node has this relay port."""

    kind = 0x84
    echo: Natural
    port: Port


class AddressBound(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The relay port knows the node's address."""

    kind = 0x85
    echo: Natural


class RequestRefused(MeetingMessage, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """The server cannot do what was asked."""

    kind = 0x86
    echo: Natural
    reason: Annotated[int, Meta(ge=1, le=4)]
    """1: the job has all its nodes; 2: the server is full; 3: it has no relay port; 4: it has no other address."""


REASONS = {
    1: "the job has all its nodes",
    2: "the server is full",
    3: "the server has no relay port",
    4: "the server has no other address",
}
JOB_FULL, SERVER_FULL, NO_RELAY, NO_OTHER = REASONS
Request = RegisterNode | ProbeNat | AllocatePort | BindAddress | LeaveJob
Answer = AddressChallenge | JobState | NatProbed | PortAllocated | AddressBound | RequestRefused
REQUESTS: tuple[type[MeetingMessage], ...] = get_args(Request)
ANSWERS: tuple[type[MeetingMessage], ...] = get_args(Answer)
_DECODERS = {each.kind: msgspec.msgpack.Decoder(each) for each in (*REQUESTS, *ANSWERS)}
_encoder = msgspec.msgpack.Encoder()


def pack(message: MeetingMessage, grant: bytes, admission: bytes) -> bytes:
    """Return the datagram of a message, under the admission of a packed grant."""
    head = bytes((FIRST_BYTE, VERSION, message.kind, 0)) + grant
    body = _encoder.encode(message)
    return head + hmac.digest(admission, head + body, hashlib.sha256)[:_MAC_BYTES] + body


def pack_request(message: MeetingMessage, grant: bytes, admission: bytes) -> bytes:
    """Return the datagram of a request, padded to LEAST_REQUEST_BYTES."""
    body = _encoder.encode(message)
    short = LEAST_REQUEST_BYTES - HEADER_BYTES - len(body)
    if short > 0:
        message = msgspec.structs.replace(message, pad=bytes(short))  # the length of the padding takes a byte at most
    return pack(message, grant, admission)


def grant_of(datagram: bytes) -> bytes:
    """Return the packed grant in a header. Raises MeetingMessageError if the datagram cannot be a message."""
    if not HEADER_BYTES < len(datagram) <= MOST_BYTES:
        raise MeetingMessageError("no message has this length")
    if datagram[0] != FIRST_BYTE or datagram[1] != VERSION or datagram[3]:
        raise MeetingMessageError("no message of this version")
    return datagram[_GRANT_AT:_MAC_AT]


def is_genuine(datagram: bytes, admission: bytes) -> bool:
    """Return whether the MAC of a datagram, which `grant_of` has accepted, is right."""
    made = hmac.digest(admission, datagram[:_MAC_AT] + datagram[HEADER_BYTES:], hashlib.sha256)
    return hmac.compare_digest(made[:_MAC_BYTES], datagram[_MAC_AT:HEADER_BYTES])


def unpack(datagram: bytes, kinds: tuple[type[MeetingMessage], ...]) -> MeetingMessage:
    """Return the message, of one of some kinds, in a datagram that is genuine. Raises MeetingMessageError."""
    if all(datagram[2] != each.kind for each in kinds):
        raise MeetingMessageError("no message of this kind is expected")
    try:
        return _DECODERS[datagram[2]].decode(datagram[HEADER_BYTES:])
    except (msgspec.MsgspecError, ValueError):
        raise MeetingMessageError("the body is no message") from None


@lru_cache(maxsize=1024)
def pack_address(address: Address) -> bytes:
    """Return an IP address and port in 6 or 18 bytes; of anything else, as of a tunnel, none."""
    host, port = address
    if not underlay.is_address(host):
        return b""
    plain = host.partition("%")[0]
    return socket.inet_pton(underlay.family(plain), plain) + _PORT.pack(port)


def unpack_address(data: bytes) -> Address | None:
    """Return the IP address and port in 6 or 18 bytes; None: there is none."""
    if len(data) not in (6, 18):
        return None
    (port,) = _PORT.unpack(data[-2:])
    if not port:
        return None
    if len(data) == 6:
        return socket.inet_ntop(IPV4, data[:4]), port
    return underlay.numeric(socket.inet_ntop(underlay.IPV6, data[:16])), port
