"""Key pairs of nodes: X25519 (RFC 7748), one or two generations of them, the newest first.

A public key is written as WireGuard's: 32 bytes in standard base64, 44 characters. A file has the private keys in the
same form, one a line; only its owner may read it. Two generations at a time let a key be replaced while connections go
on: a node answers by both, and its peers accept both.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from softnic.link.secure.keys import SHARE_BYTES, agree, public_share, read_private, write_private

GENERATIONS = 2
"""Most keys that a node has at a time."""
HOW_TO = "softnic key new FILE"
"""The command that makes a file of a private key."""
_TEXT = re.compile(r"[A-Za-z0-9+/]{43}=")
_PROBE = bytes(range(SHARE_BYTES))
"""A private key that public keys are tried with."""
_SHOWN = 8


@dataclass(frozen=True, slots=True, repr=False)
class NodeIdentity:
    """Who a node is: its private keys of SHARE_BYTES bytes, the newest first.

    Raises
    ------
    ValueError
        If there is none, or more than GENERATIONS.
    """

    private: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.private) <= GENERATIONS or any(len(key) != SHARE_BYTES for key in self.private):
            raise ValueError(f"an identity is 1 to {GENERATIONS} private keys of {SHARE_BYTES} bytes")

    @property
    def public(self) -> tuple[bytes, ...]:
        """The public keys, in the same order."""
        return tuple(map(public_share, self.private))


def key_text(key: bytes) -> str:
    """Return a key as text of 44 characters."""
    return base64.b64encode(key).decode()


def fingerprint(public: bytes) -> str:
    """Return the first 8 characters of a public key, by which people tell keys apart."""
    return key_text(public)[:_SHOWN]


def parse_public(text: str) -> bytes:
    """Return the public key of a text.

    Raises
    ------
    ValueError
        If it is no key, or one of small order, whose secrets everyone would know.
    """
    key = _decoded(text)
    if key is None:
        raise ValueError(f"{text!r} is not a public key: 44 characters, as softnic key public prints it")
    with suppress(ValueError):
        agree(_PROBE, key)
        return key
    raise ValueError(f"{text!r} is not a public key of anyone: it is of small order")


def parse_publics(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return a peer's public keys, the newest first. Raises ValueError as `parse_public`, or for another number."""
    if not 1 <= len(texts) <= GENERATIONS:
        raise ValueError(f"a node has one public key, or {GENERATIONS} while one is replaced, and not {len(texts)}")
    return tuple(dict.fromkeys(map(parse_public, texts)))


def _decoded(text: str) -> bytes | None:
    with suppress(binascii.Error):
        if _TEXT.fullmatch(text):
            return base64.b64decode(text, validate=True)
    return None


def read_identity(path: str) -> NodeIdentity:
    """Return the identity of a file.

    Raises
    ------
    ValueError
        If it cannot be read, others than its owner can read it, or it has other content. The text never shows a key.
    """
    lines = read_private(path, HOW_TO).decode(errors="replace").split()
    keys = [_decoded(line) for line in lines]
    if not 1 <= len(keys) <= GENERATIONS or None in keys:
        raise ValueError(f"{path} does not contain one or two private keys, one a line; {HOW_TO} makes such a file")
    return NodeIdentity(tuple(key for key in keys if key is not None))


def new_identity(path: str, random_bytes: Callable[[int], bytes] = os.urandom) -> NodeIdentity:
    """Make a private key and write it to a new file that only its owner may read. Raises OSError: FileExistsError if
    there is a file."""
    identity = NodeIdentity((random_bytes(SHARE_BYTES),))
    _write(path, identity)
    return identity


def rotate_identity(path: str, random_bytes: Callable[[int], bytes] = os.urandom) -> NodeIdentity:
    """Put a new private key before the newest one of a file, whose older one is removed.

    Raises ValueError as `read_identity`, and OSError if the file cannot be replaced; it is then as it was.
    """
    before = read_identity(path)
    identity = NodeIdentity((random_bytes(SHARE_BYTES), before.private[0]))
    target = str(Path(path).resolve())
    beside = f"{target}.new"
    _write(beside, identity)
    try:
        Path(beside).replace(target)
    except OSError:
        Path(beside).unlink()
        raise
    return identity


def _write(path: str, identity: NodeIdentity) -> None:
    write_private(path, "".join(f"{key_text(key)}\n" for key in identity.private))
