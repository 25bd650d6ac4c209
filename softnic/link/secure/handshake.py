"""How two nodes that have the same key come to a session, and to the next one. Sans-IO: time and randomness are given.

Both sides do the same; there is no decryptor and no answerer, so it does not matter who begins, or that both do.

1. A node offers a share: the public half of a fresh X25519 key pair. An offer is good for one session.
2. A hello carries the sender's share and the share of the receiver's that it answers, under a MAC. One that answers
   the offer I have now was made after my offer, by a holder of the key: it is no replay, whatever was recorded before.
   Only then is a session made; until then a hello costs a MAC and one answer, and changes nothing here.
3. The keys come from what X25519 makes of both shares and from the network's key. Both shares are fresh, so a session's
   keys are new after every restart of either side, and no nonce is ever used twice; and who learns the network's key
   later cannot read what was sealed before.
4. A side that has the session says so (SETTLED), or shows it by a frame. Until then the other one keeps to the session
   before, if it has one.

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
"""AES-GCM keeps its promise for 2^34.5 blocks under a key (RFC 8446, 5.5): 2^25 frames of 9018 bytes."""
RETRY_S, MAX_RETRY_S = 0.2, 2.0
TRIES = 8
"""Hellos without success until the next frame for the peer starts anew: in 10 s."""
TRIES_TO_SETTLE = 3
"""Of them, those that try to settle a session before another one is tried: the peer may have restarted meanwhile."""

RandomBytes = Callable[[int], bytes]
_SESSION_BYTES = 4


class SecureSession:
    """Keys for frames, both ways, and how far they have been used."""

    def __init__(
        self, vni: int, ours: bytes, theirs: bytes, keys: tuple[FrameKeys, FrameKeys], settled: bool, now: float
    ) -> None:
        out, back = keys
        self.ours, self.theirs = ours, theirs
        self.settled = settled
        """The peer is known to have it."""
        self.made_at = now
        self._contexts = libcrypto.encrypting(out.key), libcrypto.decrypting(back.key)
        # A session is known by the first bytes of its receiver's share.
        self.encryptor: Any = ffi.new(
            "sn_encryptor *",
            {
                "context": self._contexts[0],
                "nonce": out.nonce,
                "header": _header(vni, theirs),
                "limit": LIMIT_FRAMES,
            },
        )
        self.decryptor: Any = ffi.new(
            "sn_decryptor *", {"context": self._contexts[1], "nonce": back.nonce, "header": _header(vni, ours)}
        )

    def needs_rekey(self, now: float) -> bool:
        return now - self.made_at >= REKEY_S or self.encryptor.counter >= REKEY_FRAMES


def _header(vni: int, share: bytes) -> bytes:
    kind: int = lib.SN_SECURE_FRAME
    return (kind << 24 | vni).to_bytes(4, "big") + share[:_SESSION_BYTES]


class Handshake:
    """With one peer."""

    def __init__(self, keys: PairKeys, vni: int, random_bytes: RandomBytes) -> None:
        self._keys = keys
        self._vni = vni
        self._random_bytes = random_bytes
        self._private = b""
        self._offer = b""
        """The public half; empty: there is none."""
        self._tries = 0
        self.sessions: list[SecureSession] = []
        """The newest, and the newest settled one before it."""
        self.due: float | None = None
        """When to say hello again (`advance`)."""

    def sending(self, now: float) -> SecureSession | None:
        """What to seal frames with: the newest that the peer has; if it is not known to have any, the newest."""
        sessions = self.opening(now)
        if not sessions or sessions[0].settled:
            return sessions[0] if sessions else None
        return next((session for session in sessions if session.settled), sessions[0])

    def opening(self, now: float) -> list[SecureSession]:
        """Those that may still be used. The others are forgotten."""
        if self.sessions and now - self.sessions[-1].made_at >= EXPIRE_S:
            self.sessions = [session for session in self.sessions if now - session.made_at < EXPIRE_S]
        return self.sessions

    def forget(self, session: SecureSession) -> None:
        """It has sealed LIMIT_FRAMES."""
        self.sessions = [other for other in self.sessions if other is not session]

    def start(self, now: float) -> SecureHello | None:
        """A new session is wanted. Returns what to say, if nothing has been said lately."""
        if self.due is not None:
            return None
        self._tries = 1
        self.due = now + RETRY_S
        return self._ask()

    def advance(self, now: float) -> SecureHello | None:
        """What to say now: nothing before it is due, or when it was said TRIES times."""
        if self.due is None or now < self.due:
            return None
        if self._tries >= TRIES:
            self.due = None
            return None
        self.due = now + min(MAX_RETRY_S, RETRY_S * 2**self._tries)
        self._tries += 1
        if self._tries > TRIES_TO_SETTLE and self.sessions and not self.sessions[0].settled:
            del self.sessions[0]
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
        """Whether a hello is fresh: it answers the share that is offered now, or settles a session. Each does so once,
        however often it is sent again."""
        if self._offer and hello.answers == self._offer:
            return True
        return hello.settled and any(
            not session.settled and (session.theirs, session.ours) == (hello.share, hello.answers)
            for session in self.sessions
        )

    def on_hello(self, hello: SecureHello, now: float) -> SecureHello | None:
        """One whose MAC is right. Returns what to answer. Raises HelloError for a share that is no public key."""
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
        self._private = self._offer = b""  # good for one agreement, whatever comes of it
        try:
            agreed = agree(private, hello.share)
        except ValueError:
            raise HelloError("a hello whose share is of small order") from None
        keys = self._keys.of_session(agreed, offer, hello.share)
        session = SecureSession(self._vni, offer, hello.share, keys, hello.settled, now)
        before = [other for other in self.sessions if other.settled]
        self.sessions = [session, *before[:1]]
        self._tries = 1
        self.due = None if session.settled else now + RETRY_S
        if session.settled and not hello.asks:
            return None
        return SecureHello(session.ours, session.theirs, settled=True, asks=not session.settled)

    def settle(self, session: SecureSession) -> None:
        """The peer has shown that it has this session."""
        if not session.settled:
            session.settled = True
            if session is self.sessions[0]:
                self.due = None
