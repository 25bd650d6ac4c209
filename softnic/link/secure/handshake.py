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

A NIC with several queues says LANES in its hellos: counters of the session begin with lanes, by which each datagram is
steered to its queue. A peer with one queue says it, too, when it has heard it.
"""

from __future__ import annotations

from collections.abc import Callable

from softnic.link.secure.hello import HelloError, SecureHello
from softnic.link.secure.keys import SHARE_BYTES, PairKeys, agree, public_share
from softnic.link.secure.session import QueuePlace, SecureSession, Sessions, SessionTerms

RETRY_S, MAX_RETRY_S = 0.2, 2.0
TRIES = 8
"""Hellos without success, over 10 s, until the handshake pauses; the next frame for the peer restarts it."""
TRIES_TO_SETTLE = 3
"""How many of them try to settle a session before a new one is tried: the peer may have restarted meanwhile."""

RandomBytes = Callable[[int], bytes]


class Handshake(Sessions):
    """The handshake with one peer, by the first queue of a NIC."""

    def __init__(self, keys: PairKeys, vni: int, random_bytes: RandomBytes, queues: int = 1) -> None:
        super().__init__(keys.hello_in)
        self._keys = keys
        self._place = QueuePlace(0, queues)
        self._vni = vni
        self._random_bytes = random_bytes
        self._private = b""
        self._offer = b""
        """The public half of the offer; empty: no offer."""
        self._tries = 0
        self.due: float | None = None
        """When to repeat the hello (`advance`)."""

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
            self.use(self.sessions[1:])
        return self._ask()

    def _ask(self) -> SecureHello:
        if self.sessions and not self.sessions[0].settled:
            return self._settling(self.sessions[0], asks=True)
        return SecureHello(self._offered(), asks=True, lanes=self._has_lanes)

    @property
    def _has_lanes(self) -> bool:
        """Whether hellos say LANES though the peer has not said it."""
        return self._place.queues > 1

    @staticmethod
    def _settling(session: SecureSession, asks: bool) -> SecureHello:
        return SecureHello(session.ours, session.theirs, settled=True, asks=asks, lanes=session.terms.lanes)

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
                    self.settle(session, now)
                return self._settling(session, asks=False) if hello.asks else None
        if self._offer and hello.answers == self._offer:
            return self._make(hello, now)
        lanes = self._has_lanes or hello.lanes
        return SecureHello(self._offered(), hello.share, lanes=lanes) if hello.asks else None

    def _make(self, hello: SecureHello, now: float) -> SecureHello | None:
        if self._has_lanes and not hello.lanes:
            raise HelloError("a hello of a NIC that does not know lanes")
        private, offer = self._private, self._offer
        self._private = self._offer = b""  # good for one agreement, successful or not
        try:
            agreed = agree(private, hello.share)
        except ValueError:
            raise HelloError("a hello whose share is of small order") from None
        keys = self._keys.of_session(agreed, offer, hello.share)
        terms = SessionTerms(offer, hello.share, keys, hello.lanes, now)
        session = SecureSession(self._vni, terms, hello.settled, self._place)
        before = [other for other in self.sessions if other.settled]
        self.use([session, *before[:1]])
        self._tries = 1
        self.due = None if session.settled else now + RETRY_S
        if session.settled and not hello.asks:
            return None
        return self._settling(session, asks=not session.settled)

    def settle(self, session: SecureSession, now: float) -> None:  # noqa: ARG002
        """Mark a session as known to the peer."""
        if not session.settled:
            session.c.settled = True
            if session is self.sessions[0]:
                self.due = None
