"""The token of a job: what a node needs to meet the others, in one line of text (docs/FORMAT.md, "Meeting").

A token has two secrets. `admission` proves to a server that the owner of its secret allowed the job; servers compute it
and store nothing. `secret` is for the nodes alone: it seals their cards, and servers never see it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from softnic import underlay
from softnic.link.secure.keys import expand, extract, read_private
from softnic.underlay import Address

PREFIX = "softnic-join:"
HOW_TO = "(umask 077; softnic meet token --server HOST:9470 --nodes N > FILE)"
"""The command that makes a file with a token."""
VERSION = 1
MOST_NODES = 4096
"""Nodes of a job."""
MOST_SERVERS = 8
MOST_TEXT = 4096
"""Characters of a token."""
_ADMISSION_SALT = b"softnic meeting admission 1"
_SECRET_SALT = b"softnic meeting secret 1"
_GRANT = struct.Struct("!16sIQI")

Bytes16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Nodes = Annotated[int, Meta(ge=1, le=MOST_NODES)]


class TokenError(ValueError):
    """A token that cannot be used; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a server allows: a job, how many nodes it has, until when, and its share of the relay."""

    job: bytes
    """16 random bytes."""
    nodes: int
    expiry: int
    """Unix time, seconds."""
    relay_kbps: int = 0
    """Limit of what the relay forwards, kbit/s; 0: the server's own limit."""

    def pack(self) -> bytes:
        """Return the 32 bytes that `admission` authenticates."""
        return _GRANT.pack(self.job, self.nodes, self.expiry, self.relay_kbps)

    @classmethod
    def unpack(cls, data: bytes) -> Grant:
        """Return the grant of 32 bytes, whatever they are."""
        return cls(*_GRANT.unpack(data))


GRANT_BYTES = _GRANT.size
Admit = Callable[[bytes], bytes | None]
"""Returns the admission of a packed grant; None: a server serves no such job."""


def admission(server_secret: bytes, grant: bytes) -> bytes:
    """Return the 32 bytes that prove that the owner of a server's secret made this packed grant."""
    return hmac.digest(extract(_ADMISSION_SALT, server_secret), grant, hashlib.sha256)


def admits_all(server_secret: bytes) -> Admit:
    """Return the admissions of a server that serves every job whose token was made with its secret."""
    return partial(admission, server_secret)


def admits_one(token: Token) -> Admit:
    """Return the admissions of a node that serves its own job: no other grant has any."""
    own = token.grant.pack()
    return lambda packed: token.admission if packed == own else None


class _Packed(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A token as msgpack."""

    version: int
    servers: Annotated[list[str], Meta(min_length=1, max_length=MOST_SERVERS)]
    job: Bytes16
    nodes: Nodes
    expiry: Annotated[int, Meta(ge=0, lt=1 << 53)]
    relay_kbps: Annotated[int, Meta(ge=0, lt=1 << 32)]
    admission: Bytes32
    secret: Bytes32


_decoder = msgspec.msgpack.Decoder(_Packed)


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token. Whoever has it can join the job."""

    servers: tuple[Address, ...]
    """Hosts, by name or address, and ports."""
    grant: Grant
    admission: bytes
    """32 bytes."""
    secret: bytes
    """32 bytes that servers do not have."""

    @property
    def nodes(self) -> int:
        """How many nodes the job has."""
        return self.grant.nodes

    @classmethod
    def make(cls, server_secret: bytes, servers: Sequence[Address], grant: Grant, secret: bytes) -> Token:
        """Return a token for a job.

        Parameters
        ----------
        server_secret : bytes
            The 32 bytes that the servers have.
        servers : sequence of address
            Where the servers are.
        grant : Grant
            What the job may do; `job` is random.
        secret : bytes
            32 random bytes.

        Raises
        ------
        TokenError
            If a number is out of range.
        """
        made = cls(tuple(servers), grant, admission(server_secret, grant.pack()), secret)
        return cls.parse(made.text())

    @classmethod
    def parse(cls, text: str) -> Token:
        """Return the token that a text is. Raises TokenError."""
        text = text.strip()
        if not text.startswith(PREFIX) or len(text) > MOST_TEXT:
            raise TokenError(f"a token begins with {PREFIX} and is one line: `softnic meet token` prints one")
        coded = text.removeprefix(PREFIX).encode(errors="replace")
        try:
            packed = base64.b64decode(coded + b"=" * (-len(coded) % 4), altchars=b"-_", validate=True)
            read = _decoder.decode(packed)
            servers = tuple(underlay.parse(each) for each in read.servers)
        except (binascii.Error, msgspec.MsgspecError, ValueError):
            raise TokenError("the token is damaged or incomplete: copy all of it") from None
        if read.version != VERSION:
            raise TokenError(f"the token has version {read.version}, not {VERSION}: the hosts have different releases")
        grant = Grant(read.job, read.nodes, read.expiry, read.relay_kbps)
        return cls(servers, grant, read.admission, read.secret)

    def check(self, unix_time: float) -> Token:
        """Return this token if it is valid at a time. Raises TokenError."""
        if unix_time >= self.grant.expiry:
            raise TokenError("the token has expired: `softnic meet token` makes a new one")
        return self

    def text(self) -> str:
        """Return the token as text."""
        grant = self.grant
        servers = [underlay.text(each) for each in self.servers]
        packed = _Packed(
            VERSION, servers, grant.job, grant.nodes, grant.expiry, grant.relay_kbps, self.admission, self.secret
        )
        return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(packed)).decode().rstrip("=")

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 secret bytes that all nodes of the job have, and no server, for one purpose."""
        return expand(extract(_SECRET_SALT, self.secret), purpose + b"\0" + self.grant.job, 32)


def is_token(text: str) -> bool:
    """Return whether the text is a token itself and not a file name."""
    return text.strip().startswith(PREFIX)


def read_token(text: str) -> Token:
    """Return the token that a configuration names: the token, or the path of a file that contains it.

    Raises TokenError, whose text never shows a token.
    """
    if is_token(text):
        return Token.parse(text)
    try:
        content = read_private(text, HOW_TO, "token").decode(errors="replace")
    except ValueError as error:
        raise TokenError(str(error)) from None
    try:
        return Token.parse(content)
    except TokenError as error:
        raise TokenError(f"{text}: {error}") from None
