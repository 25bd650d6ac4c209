"""The network's key and the keys derived from it (HKDF, RFC 5869, with SHA-256).

Every pair of nodes has keys of its own for each direction: the derivation includes the sender's MAC and then the
receiver's. So a datagram is valid only for that receiver and from that sender.

cryptography takes 7 MB of memory, so only a NIC with a key imports it.
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
SHARE_BYTES = 32
"""An X25519 key, private or public, and the secret that two of them agree on."""
HOW_TO = "(umask 077; openssl rand -hex 32 > softnic.key)"
"""The command that makes a key."""
_SALT = b"softnic sealed datagrams 1"
_DIGITS = re.compile(rb"[0-9a-fA-F]{64}")


def is_key(text: str) -> bool:
    """Return whether the text is a key itself and not a file name."""
    return _DIGITS.fullmatch(text.encode(errors="replace")) is not None


def read_key(text: str) -> bytes:
    """Return the key that a configuration names: 64 hexadecimal digits, or the path of a file that contains them.

    Raises ValueError, whose text never shows a key.
    """
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
        raise ValueError(f"{text} is accessible to others than its owner: chmod 600 {text}")
    if not _DIGITS.fullmatch(held):
        raise ValueError(f"{text} does not contain 64 hexadecimal digits and nothing else; {HOW_TO} makes a key")
    return bytes.fromhex(held.decode())


def extract(salt: bytes, secret: bytes) -> bytes:
    """HKDF-Extract with SHA-256 (RFC 5869, section 2.2)."""
    return hmac.digest(salt, secret, hashlib.sha256)


def expand(key: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand with SHA-256 (RFC 5869, section 2.3)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    return HKDFExpand(SHA256(), length, info).derive(key)


def public_share(private: bytes) -> bytes:
    """Return the public key of an X25519 private key of SHARE_BYTES bytes (RFC 7748)."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, share: bytes) -> bytes:
    """Return the X25519 shared secret (RFC 7748, section 6.1).

    Raises ValueError for a share of another length or of small order, whose secret would be known to everyone.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(share))


@dataclass(frozen=True, slots=True, repr=False)
class FrameKeys:
    """Key and base nonce of one direction of a session."""

    key: bytes
    nonce: bytes


class PairKeys:
    """The keys that two nodes share, seen from the one whose MAC is `own`."""

    def __init__(self, network_key: bytes, vni: int, own: bytes, other: bytes) -> None:
        if len(network_key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(network_key)}")
        self._own, self._other = own, other
        self._network = vni.to_bytes(4, "big")
        self._secret = extract(_SALT, network_key)
        self.hello_out = expand(self._secret, b"hello" + self._network + own + other, KEY_BYTES)
        """Authenticates the hellos that this node sends."""
        self.hello_in = expand(self._secret, b"hello" + self._network + other + own, KEY_BYTES)

    def of_session(self, agreed: bytes, ours: bytes, theirs: bytes) -> tuple[FrameKeys, FrameKeys]:
        """Return the keys for outgoing and incoming frames of a session.

        Parameters
        ----------
        agreed : bytes
            The X25519 secret.
        ours, theirs : bytes
            The public shares of this node and its peer.
        """
        secret = extract(self._secret, agreed)
        out = self._network + self._own + self._other + ours + theirs
        back = self._network + self._other + self._own + theirs + ours
        return _frame_keys(secret, out), _frame_keys(secret, back)


def _frame_keys(secret: bytes, which: bytes) -> FrameKeys:
    made = expand(secret, b"frame" + which, KEY_BYTES + NONCE_BYTES)
    return FrameKeys(made[:KEY_BYTES], made[KEY_BYTES:])
