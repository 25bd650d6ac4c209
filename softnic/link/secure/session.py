"""Sessions: the keys that two nodes have agreed on, and how far they have been used.

A session is replaced after REKEY_S or REKEY_FRAMES, when there is something to send, and not used after EXPIRE_S or
LIMIT_FRAMES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from softnic._native import ffi, lib
from softnic.link.secure import libcrypto
from softnic.link.secure.keys import FrameKeys

REKEY_S, EXPIRE_S = 120.0, 240.0
REKEY_FRAMES, LIMIT_FRAMES = 1 << 24, 1 << 25
"""Of all queues together. AES-GCM's limit is 2^34.5 blocks under one key (RFC 8446, section 5.5): 2^25 frames of 9018
bytes."""
_SESSION_BYTES = 4


class QueuePlace(NamedTuple):
    """The number of a queue, and how many its NIC has."""

    number: int
    queues: int


ONLY_QUEUE = QueuePlace(0, 1)


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What two nodes have agreed on."""

    ours: bytes
    theirs: bytes
    """Shares."""
    keys: tuple[FrameKeys, FrameKeys]
    """Of this node's frames, and of the peer's."""
    lanes: bool
    """Counters begin with the lanes of frames, and queues count by themselves (native/nic/aead.h)."""
    made_at: float
    pair: bytes = b""
    """Name of the keys of the two nodes by which they agreed (key_ring.py)."""


class SecureSession:
    """Keys for frames in both directions, and how far a queue has used them."""

    def __init__(self, vni: int, terms: SessionTerms, settled: bool, place: QueuePlace) -> None:
        out, back = terms.keys
        self.terms = terms
        self.ours, self.theirs = terms.ours, terms.theirs
        self._contexts = libcrypto.encrypting(out.key), libcrypto.decrypting(back.key)
        self.c: Any = ffi.new(
            "sn_session *",
            {
                "rekey_at": terms.made_at + REKEY_S,
                "rekey_counter": REKEY_FRAMES // place.queues,
                "expires_at": terms.made_at + EXPIRE_S,
                "settled": settled,
            },
        )
        self.encryptor, self.decryptor = ffi.addressof(self.c, "encryptor"), ffi.addressof(self.c, "decryptor")
        # A session is identified by the first bytes of its receiver's share.
        self.encryptor.context, self.decryptor.context = self._contexts
        self.encryptor.nonce, self.decryptor.nonce = out.nonce, back.nonce
        self.encryptor.header, self.decryptor.header = _header(vni, self.theirs), _header(vni, self.ours)
        self.encryptor.limit = LIMIT_FRAMES // place.queues
        if terms.lanes:
            self._windows = ffi.new("sn_replay_window[]", lib.SN_COUNTER_QUEUES)
            self.encryptor.lanes, self.encryptor.queue = True, place.number
            self.decryptor.by_queue = self._windows

    @property
    def windows(self) -> Any:
        """What tells replays of the peer's datagrams."""
        return self._windows if self.terms.lanes else ffi.addressof(self.decryptor, "window")

    @property
    def name(self) -> bytes:
        """First bytes of the peer's datagrams."""
        return bytes(ffi.buffer(self.decryptor.header))

    @property
    def settled(self) -> bool:
        """Whether the peer is known to have the session."""
        return bool(self.c.settled)

    def needs_rekey(self, now: float) -> bool:
        return bool(lib.sn_session_needs_rekey(self.c, now))


def _header(vni: int, share: bytes) -> bytes:
    kind: int = lib.SN_SECURE_FRAME
    return (kind << 24 | vni).to_bytes(4, "big") + share[:_SESSION_BYTES]


class Sessions:
    """The sessions of a queue with one peer. `index` has all by the first bytes of their datagrams, to find them by."""

    def __init__(self, index: dict[bytes, Sessions] | None = None) -> None:
        self._index = {} if index is None else index
        self.sessions: list[SecureSession] = []
        """The newest, and the newest settled one before it."""
        self.c: Any = ffi.new("sn_secure_peer *")
        """What C knows of them."""

    def sending(self, now: float) -> SecureSession | None:
        """Return the session to encrypt with: the newest settled one, else the newest."""
        sessions = self.opening(now)
        chosen = lib.sn_sending_session(self.c, now)
        return next((session for session in sessions if session.c == chosen), None)

    def opening(self, now: float) -> list[SecureSession]:
        """Return the sessions in use. Expired ones are removed."""
        if self.sessions and now >= self.sessions[-1].c.expires_at:
            self.use([session for session in self.sessions if now < session.c.expires_at])
        return self.sessions

    def use(self, sessions: list[SecureSession]) -> None:
        """Have these sessions and no other."""
        for session in self.sessions:
            if self._index.get(session.name) is self:
                del self._index[session.name]
        self.sessions = sessions
        self._index.update((session.name, self) for session in sessions)
        self.c.session_count = len(sessions)
        for index, session in enumerate(sessions):
            self.c.sessions[index] = session.c

    def forget(self, session: SecureSession) -> None:
        """Remove a session that has reached its limit of frames."""
        self.use([other for other in self.sessions if other is not session])

    def keep(self, is_allowed: Callable[[bytes], bool]) -> int:
        """Remove the sessions by keys whose names are not allowed. Returns how many."""
        kept = [session for session in self.sessions if is_allowed(session.terms.pair)]
        ended = len(self.sessions) - len(kept)
        if ended:
            self.use(kept)
        return ended

    def claim(self, cipher: Any, datagram: bytes, now: float, *, notes: bool) -> SecureSession | None:
        """Open a datagram that may be a replay from anywhere. Returns its session if it is authentic, and later than
        all that were opened before. Without `notes` it may be opened again, as if it had not been."""
        for session in self.opening(now):
            if lib.sn_is_ahead(session.decryptor, datagram, len(datagram)):
                data = ffi.new("uint8_t[]", datagram)
                found, place = ffi.new("sn_decrypted *"), ffi.new("uint32_t[2]", [0, len(datagram)])
                windows = session.windows
                before = bytes(ffi.buffer(windows))
                where = (place, place + 1, 1, place, place + 1)
                lib.sn_decrypt(cipher, ffi.NULL, 0, [session.decryptor], 1, data, *where, found)
                if not notes:
                    ffi.buffer(windows)[:] = before
                return session if found.by[0] else None
        return None

    def end(self) -> None:
        """Remove all sessions."""
        self.use([])
