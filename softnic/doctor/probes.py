"""Datagrams and messages between `softnic doctor PEER` and `softnic doctor --listen`.

A probe is a datagram of MAGIC, JSON and zeros. The listener answers each with one that is never longer, so that nobody
can use it to send others more than they send themselves. TCP on the same port carries the same messages: through it the
asking side learns which of its probes have arrived when answers do not.

Both sides take what others send for hostile: a message is one with all values within their limits, or none.
"""

from __future__ import annotations

import hmac
import time
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from softnic import codecs
from softnic.ipc.control import VERSION
from softnic.version import version as installed_version

ANY_VERSION = b"softnic doctor "
"""How messages of every version of this protocol begin."""
MAGIC = ANY_VERSION + b"1\n"
QUESTION_BYTES = 1100
"""Length of a question for facts; the answer fits into it."""
DEFAULT_PORT = 4789
Text: TypeAlias = Annotated[str, Meta(max_length=80, pattern="^[ -~]*$")]
"""Nothing that a terminal interprets."""
Number: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the asking side sends."""

    token: Text
    """Names the asking run."""
    number: Number = 0
    nonce: Text = ""
    """For the proof that both have the same key."""
    echo: bool = False
    """The answer is to be as long as the question."""
    facts: bool = False
    burst: bool = False
    """Part of a measurement: counted, not answered."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a side says about itself."""

    version: Text
    control: Number
    codecs: Number
    """Bitmap of codec numbers."""
    time_s: Seconds
    """Its clock, seconds since 1970."""
    proof: Text = ""
    """HMAC of the nonce under its key; empty without a key."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the listener replies, with what it has counted for the token."""

    token: Text
    number: Number = 0
    size: Number = 0
    """Bytes of the question as it arrived."""
    received: Number = 0
    """Questions with this token so far."""
    burst_bytes: Number = 0
    burst_s: Seconds = 0.0
    facts: Facts | None = None


def facts(key: bytes | None, nonce: str, version: str = "") -> Facts:
    """Return the facts of this side."""
    return Facts(
        version=version or installed_version(),
        control=VERSION,
        codecs=codecs.BUILT_IN,
        time_s=time.time(),
        proof=proof(key, nonce),
    )


def proof(key: bytes | None, nonce: str) -> str:
    """Return what only a holder of the key can make of a nonce; empty without a key."""
    return "" if key is None else hmac.digest(key, b"softnic doctor " + nonce.encode(), "sha256").hex()


def encode(message: Question | Answer, size: int = 0) -> bytes:
    """Return a datagram of `size` bytes, or as long as necessary."""
    return (MAGIC + msgspec.json.encode(message)).ljust(size, b"\0")


def decode(datagram: bytes, kind: Any) -> Any:
    """Return the first message of one or (GRO) several datagrams, None if it is none of this kind."""
    if not datagram.startswith(MAGIC):
        return None
    try:
        return msgspec.json.decode(datagram[len(MAGIC) :].partition(b"\0")[0], type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
