"""The network's key, and what is derived from it (HKDF, RFC 5869, with SHA-256).

Every pair of nodes and each direction has keys of its own: a node's MAC stands in what they are derived from, the
sender's before the receiver's. So a datagram means nothing but what its sender said to that receiver, wherever somebody
takes it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

KEY_BYTES = 32
NONCE_BYTES = 12
HOW_TO = "(umask 077; openssl rand -hex 32 > softnic.key)"
"""Makes a key."""
_SALT = b"softnic sealed datagrams 1"
_DIGITS = re.compile(rb"[0-9a-fA-F]{64}")


def is_key(text: str) -> bool:
    """It is a key itself, and no file's name."""
    return _DIGITS.fullmatch(text.encode(errors="replace")) is not None


def read_key(text: str) -> bytes:
    """The key that a configuration names: 64 hexadecimal digits, or the path of a file that holds them. Raises
    ValueError, whose text never shows a key."""
    if is_key(text):
        return bytes.fromhex(text)
    path = Path(text)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            held = file.read(4096).strip()
    except FileNotFoundError as error:
        raise ValueError(f"{text}: {error.strerror}; {HOW_TO} makes a key") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{text}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise ValueError(f"{text} is open to others than its owner: chmod 600 {text}")
    if not _DIGITS.fullmatch(held):
        raise ValueError(f"{text} does not hold 64 hexadecimal digits and nothing else; {HOW_TO} makes a key")
    return bytes.fromhex(held.decode())


def extract(salt: bytes, secret: bytes) -> bytes:
    """RFC 5869, 2.2."""
    return hmac.digest(salt, secret, hashlib.sha256)


def expand(key: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, 2.3."""
    made, block = b"", b""
    while len(made) < length:
        block = hmac.digest(key, block + info + bytes([len(made) // 32 + 1]), hashlib.sha256)
        made += block
    return made[:length]


@dataclass(frozen=True, slots=True, repr=False)
class FrameKeys:
    """Of one direction of a session."""

    key: bytes
    nonce: bytes


class PairKeys:
    """What two nodes of a network have in common, seen from the one whose MAC is `own`."""

    def __init__(self, network_key: bytes, vni: int, own: bytes, other: bytes) -> None:
        if len(network_key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(network_key)}")
        self._own, self._other = own, other
        self._network = vni.to_bytes(4, "big")
        self._secret = extract(_SALT, network_key)
        self.hello_out = expand(self._secret, b"hello" + self._network + own + other, KEY_BYTES)
        """Authenticates hellos that this node sends."""
        self.hello_in = expand(self._secret, b"hello" + self._network + other + own, KEY_BYTES)

    def of_session(self, agreed: bytes, ours: bytes, theirs: bytes) -> tuple[FrameKeys, FrameKeys]:
        """For frames out and in. `agreed` is what X25519 gave for the two public shares, `ours` and `theirs`."""
        secret = extract(self._secret, agreed)
        out = self._network + self._own + self._other + ours + theirs
        back = self._network + self._other + self._own + theirs + ours
        return _frame_keys(secret, out), _frame_keys(secret, back)


def _frame_keys(secret: bytes, which: bytes) -> FrameKeys:
    made = expand(secret, b"frame" + which, KEY_BYTES + NONCE_BYTES)
    return FrameKeys(made[:KEY_BYTES], made[KEY_BYTES:])
