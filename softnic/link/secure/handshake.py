"""Agrees on sessions between two nodes that share a key. Sans-IO: time and randomness are arguments.

Both sides do the same: there is neither client nor server, so either or both may begin.

1. A node offers a share: the public half of a fresh X25519 key pair. An offer is good for one session.
2. A hello carries the sender's share and the receiver's share that it answers, under a MAC. A hello that answers the
   current offer was made after that offer by a holder of the key, so it is not a replay. Only then is a session made;
   any other hello costs a MAC and one answer, and changes nothing.
3. The session's keys are derived from the X25519 secret of both shares and from the network's key. Both shares are
   fresh, so keys are new after a restart of either side and no nonce repeats; and a network key that leaks later does
   not decrypt recorded sessions (forward secrecy).
4. A side that has the session confirms it (SETTLED), or shows it by sending a frame. Until then the other side keeps
   using the previous session, if any.

A session is replaced after REKEY_S or REKEY_FRAMES, when there is something to send, and not used after EXPIRE_S or
LIMIT_FRAMES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softnic._native import ffi, lib
from softnic.link.secure import libcrypto
from softnic.link.secure.hello import HelloError, SecureHello
from softnic.link.secure.keys import SHARE_BYTES, FrameKeys, PairKeys, agree, public_share

REKEY_S, EXPIRE_S = 120.0, 240.0
REKEY_FRAMES, LIMIT_FRAMES = 1 << 24, 1 << 25
"""AES-GCM's limit is 2^34.5 blocks under one key (RFC 8446, section 5.5): 2^25 frames of 9018 bytes."""
RETRY_S, MAX_RETRY_S = 0.2, 2.0
TRIES = 8
"""Hellos without success, over 10 s, until the handshake pauses; the next frame for the peer restarts it."""
TRIES_TO_SETTLE = 3
"""How many of them try to settle a session before a new one is tried: the peer may have restarted meanwhile."""

RandomBytes = Callable[[int], bytes]
_SESSION_BYTES = 4


class SecureSession:
    """Keys for frames in both directions, and how far they have been used."""

    def __init__(
        self, vni: int, ours: bytes, theirs: bytes, keys: tuple[FrameKeys, FrameKeys], settled: bool, now: float
    ) -> None:
        out, back = keys
        self.ours, self.theirs = ours, theirs
        self.made_at = now
        self._contexts = libcrypto.encrypting(out.key), libcrypto.decrypting(back.key)
        self.c: Any = ffi.new(
            "sn_session *",
            {
                "rekey_at": now + REKEY_S,
                "rekey_counter": REKEY_FRAMES,
                "expires_at": now + EXPIRE_S,
                "settled": settled,
            },
        )
        self.encryptor, self.decryptor = ffi.addressof(self.c, "encryptor"), ffi.addressof(self.c, "decryptor")
        # A session is identified by the first bytes of its receiver's share.
        self.encryptor.context, self.decryptor.context = self._contexts
        self.encryptor.nonce, self.decryptor.nonce = out.nonce, back.nonce
        self.encryptor.header, self.decryptor.header = _header(vni, theirs), _header(vni, ours)
        self.encryptor.limit = LIMIT_FRAMES

    @property
    def settled(self) -> bool:
        """Whether the peer is known to have the session."""
        return bool(self.c.settled)

    def needs_rekey(self, now: float) -> bool:
        return bool(lib.sn_session_needs_rekey(self.c, now))


def _header(vni: int, share: bytes) -> bytes:
    kind: int = lib.SN_SECURE_FRAME
    return (kind << 24 | vni).to_bytes(4, "big") + share[:_SESSION_BYTES]


class Handshake:
    """The handshake with one peer."""

    def __init__(self, keys: PairKeys, vni: int, random_bytes: RandomBytes) -> None:
        self._keys = keys
        self._vni = vni
        self._random_bytes = random_bytes
        self._private = b""
        self._offer = b""
        """The public half of the offer; empty: no offer."""
        self._tries = 0
        self.sessions: list[SecureSession] = []
        """The newest, and the newest settled one before it."""
        self.c: Any = ffi.new("sn_secure_peer *", {"hello_key": keys.hello_in})
        """What C knows of them."""
        self.due: float | None = None
        """When to repeat the hello (`advance`)."""

    def sending(self, now: float) -> SecureSession | None:
        """Return the session to encrypt with: the newest settled one, else the newest."""
        sessions = self.opening(now)
        chosen = lib.sn_sending_session(self.c, now)
        return next((session for session in sessions if session.c == chosen), None)

    def opening(self, now: float) -> list[SecureSession]:
        """Return the sessions in use. Expired ones are removed."""
        if self.sessions and now >= self.sessions[-1].c.expires_at:
            self._use([session for session in self.sessions if now < session.c.expires_at])
        return self.sessions

    def _use(self, sessions: list[SecureSession]) -> None:
        self.sessions = sessions
        self.c.session_count = len(sessions)
        for index, session in enumerate(sessions):
            self.c.sessions[index] = session.c

    def forget(self, session: SecureSession) -> None:
        """Remove a session that has reached LIMIT_FRAMES."""
        self._use([other for other in self.sessions if other is not session])

    def end(self) -> None:
        """Remove all sessions."""
        self._use([])

    def start(self, now: float) -> SecureHello | None:
        """Ask for a new session. Returns the hello to send, or None if one is outstanding."""
        if self.due is not None:
            return None
        self._tries = 1
        self.due = now + RETRY_S
        return self._ask()

    def advance(self, now: float) -> SecureHello | None:
        """Return the hello to repeat: None before it is due, and after TRIES."""
        if self.due is None or now < self.due:
            return None
        if self._tries >= TRIES:
            self.due = None
            return None
        self.due = now + min(MAX_RETRY_S, RETRY_S * 2**self._tries)
        self._tries += 1
        if self._tries > TRIES_TO_SETTLE and self.sessions and not self.sessions[0].settled:
            self._use(self.sessions[1:])
        return self._ask()

    def _ask(self) -> SecureHello:
        if self.sessions and not self.sessions[0].settled:
            return SecureHello(self.sessions[0].ours, self.sessions[0].theirs, settled=True, asks=True)
        return SecureHello(self._offered(), asks=True)

    def _offered(self) -> bytes:
        if not self._offer:
            self._private = self._random_bytes(SHARE_BYTES)
            self._offer = public_share(self._private)
        return self._offer

    def is_fresh(self, hello: SecureHello) -> bool:
        """Return whether a hello is no replay: it answers the current offer or settles a session, once."""
        if self._offer and hello.answers == self._offer:
            return True
        return hello.settled and any(
            not session.settled and (session.theirs, session.ours) == (hello.share, hello.answers)
            for session in self.sessions
        )

    def on_hello(self, hello: SecureHello, now: float) -> SecureHello | None:
        """Process a hello whose MAC is right and return the answer. Raises HelloError for an illegal share."""
        for session in self.sessions:
            if session.theirs == hello.share:
                if hello.settled and hello.answers == session.ours:
                    self.settle(session)
                return SecureHello(session.ours, session.theirs, settled=True) if hello.asks else None
        if self._offer and hello.answers == self._offer:
            return self._make(hello, now)
        return SecureHello(self._offered(), hello.share) if hello.asks else None

    def _make(self, hello: SecureHello, now: float) -> SecureHello | None:
        private, offer = self._private, self._offer
        self._private = self._offer = b""  # good for one agreement, successful or not
        try:
            agreed = agree(private, hello.share)
        except ValueError:
            raise HelloError("a hello whose share is of small order") from None
        keys = self._keys.of_session(agreed, offer, hello.share)
        session = SecureSession(self._vni, offer, hello.share, keys, hello.settled, now)
        before = [other for other in self.sessions if other.settled]
        self._use([session, *before[:1]])
        self._tries = 1
        self.due = None if session.settled else now + RETRY_S
        if session.settled and not hello.asks:
            return None
        return SecureHello(session.ours, session.theirs, settled=True, asks=not session.settled)

    def settle(self, session: SecureSession) -> None:
        """Mark a session as known to the peer."""
        if not session.settled:
            session.c.settled = True
            if session is self.sessions[0]:
                self.due = None
