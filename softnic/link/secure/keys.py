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

from softnic.link.secure.hello import KIND, LENGTH, SecureHello, is_authentic, parse, peek

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
    held = read_private(text, HOW_TO)
    if not _DIGITS.fullmatch(held):
        raise ValueError(f"{text} does not contain 64 hexadecimal digits and nothing else; {HOW_TO} makes a key")
    return bytes.fromhex(held.decode())


def read_private(path: str, how_to: str, what: str = "key") -> bytes:
    """Return the content of a file that only its owner may read, at most 4 KiB, without space around it.

    Raises ValueError, with the command `how_to` that makes `what` it contains if there is no file.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            held = file.read(4096).strip()
    except FileNotFoundError as error:
        raise ValueError(f"{path}: {error.strerror}; {how_to} makes a {what}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise ValueError(f"{path} is accessible to others than its owner: chmod 600 {path}")
    return held


def write_private(path: str | Path, content: str) -> None:
    """Write a new file that only its owner may read. Raises OSError: FileExistsError if there is a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


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
    """The keys that two nodes share by the network's key, seen from the one whose MAC is `own`."""

    kind: int = KIND
    """First byte of its hellos."""
    hint_in = 0
    """Hint in the peer's hellos."""
    name = b""
    """What tells it from other keys of the two nodes."""

    def __init__(self, network_key: bytes, vni: int, own: bytes, other: bytes) -> None:
        if len(network_key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(network_key)}")
        self._own, self._other, self._vni = own, other, vni
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
        return frame_keys(secret, out), frame_keys(secret, back)

    def agree(self, private: bytes, ours: bytes, theirs: bytes) -> tuple[FrameKeys, FrameKeys]:
        """Return the keys of a session, as `of_session`, of the private half of `ours`. Raises ValueError for a share
        of small order."""
        return self.of_session(agree(private, theirs), ours, theirs)

    def pack(self, hello: SecureHello) -> bytes:
        """Return the datagram of a hello to the peer."""
        return hello.pack(self._vni, self.hello_out)

    def peek(self, datagram: bytes) -> SecureHello:
        """Return the fields of a hello of the peer unchecked."""
        return peek(datagram)

    def authenticates(self, datagram: bytes) -> bool:
        """Return whether a hello was made under these keys by the peer."""
        return is_authentic(datagram, LENGTH, self.hello_in)

    def parse(self, datagram: bytes) -> SecureHello:
        """Check and parse a hello of the peer. Raises HelloError."""
        return parse(datagram, self._vni, self.hello_in)


def frame_keys(secret: bytes, which: bytes) -> FrameKeys:
    """Return the keys of one direction of a session: `which` has all that tells it from others."""
    made = expand(secret, b"frame" + which, KEY_BYTES + NONCE_BYTES)
    return FrameKeys(made[:KEY_BYTES], made[KEY_BYTES:])
