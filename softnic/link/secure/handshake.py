"""Agrees on sessions between two nodes that share keys. Sans-IO: time and randomness are arguments.

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

Two nodes share one key of the network, or up to four pairs of their own keys (key_ring.py). An offer is one of a pair
of keys. Hellos without an answer are repeated by one pair after another, the newest first; those of the peer are
answered by the pair that they came by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softnic._native import lib
from softnic.link.secure.hello import HelloError, SecureHello
from softnic.link.secure.key_ring import AnyKeys
from softnic.link.secure.keys import SHARE_BYTES, public_share
from softnic.link.secure.session import QueuePlace, SecureSession, Sessions, SessionTerms

RETRY_S, MAX_RETRY_S = 0.2, 2.0
TRIES = 8
"""Hellos without success, over 10 s, until the handshake pauses; the next frame for the peer restarts it."""
TRIES_TO_SETTLE = 3
"""How many of them try to settle a session before a new one is tried: the peer may have restarted meanwhile."""

RandomBytes = Callable[[int], bytes]


class Handshake(Sessions):
    """The handshake with one peer, by the first queue of a NIC."""

    def __init__(
        self,
        pairs: Sequence[AnyKeys],
        vni: int,
        random_bytes: RandomBytes,
        queues: int = 1,
        index: dict[bytes, Sessions] | None = None,
    ) -> None:
        super().__init__(index)
        self._place = QueuePlace(0, queues)
        self._vni = vni
        self._random_bytes = random_bytes
        self._offers: dict[bytes, tuple[bytes, bytes]] = {}
        """The private and the public half of the offer by each pair of keys, by its name."""
        self._tries = 0
        self._asked = 0
        """Place of the pair of keys by which to ask."""
        self.due: float | None = None
        """When to repeat the hello (`advance`)."""
        self.set_pairs(pairs)

    def set_pairs(self, pairs: Sequence[AnyKeys]) -> None:
        """Use these pairs of keys from now on, the first ones first. Sessions that exist go on."""
        self.pairs = list(pairs[: lib.SN_MOST_HELLO_KEYS])
        self._by_name = {pair.name: pair for pair in self.pairs}
        self._offers = {name: offer for name, offer in self._offers.items() if name in self._by_name}
        self._asked = 0
        self.c.hello_key_count = len(self.pairs)
        for place, pair in enumerate(self.pairs):
            key = self.c.hello_keys[place]
            key.kind, key.hint, key.key = pair.kind, pair.hint_in, pair.hello_in
        if not self.pairs:
            self.due = None

    def pack(self, hello: SecureHello) -> bytes | None:
        """Return the datagram of a hello; None if its keys are used no more."""
        pair = self._by_name.get(hello.pair)
        return None if pair is None else pair.pack(hello)

    def keep(self, is_allowed: Callable[[bytes], bool]) -> int:
        """Remove the sessions by keys whose names are not allowed. The next frame asks for another one."""
        ended = super().keep(is_allowed)
        if ended:
            self.due = None
        return ended

    def start(self, now: float) -> SecureHello | None:
        """Ask for a new session. Returns the hello to send, or None if one is outstanding."""
        if self.due is not None or not self.pairs:
            return None
        self._tries, self._asked = 1, 0
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
        self._asked = (self._asked + 1) % len(self.pairs)
        if self._tries > TRIES_TO_SETTLE and self.sessions and not self.sessions[0].settled:
            self.use(self.sessions[1:])
        return self._ask()

    def probe(self) -> SecureHello | None:
        """Return a hello that asks for an answer, once: it may reach the peer at another address."""
        return self._ask() if self.pairs else None

    def _ask(self) -> SecureHello:
        if self.sessions and not self.sessions[0].settled:
            return self._settling(self.sessions[0], asks=True)
        pair = self.pairs[self._asked].name
        return SecureHello(self._offered(pair), asks=True, lanes=self._has_lanes, pair=pair)

    @property
    def _has_lanes(self) -> bool:
        """Whether hellos say LANES though the peer has not said it."""
        return self._place.queues > 1

    @staticmethod
    def _settling(session: SecureSession, asks: bool) -> SecureHello:
        terms = session.terms
        return SecureHello(terms.ours, terms.theirs, True, asks, terms.lanes, terms.pair)

    def _offered(self, pair: bytes) -> bytes:
        if pair not in self._offers:
            private = self._random_bytes(SHARE_BYTES)
            self._offers[pair] = private, public_share(private)
        return self._offers[pair][1]

    def _answers_offer(self, hello: SecureHello) -> bool:
        offer = self._offers.get(hello.pair)
        return offer is not None and hello.answers == offer[1]

    def is_fresh(self, hello: SecureHello) -> bool:
        """Return whether a hello is no replay: it answers the current offer or settles a session, once."""
        if self._answers_offer(hello):
            return True
        return hello.settled and any(
            not session.settled and session.ours == hello.answers and self._is_of(session, hello)
            for session in self.sessions
        )

    @staticmethod
    def _is_of(session: SecureSession, hello: SecureHello) -> bool:
        """Return whether a hello has the peer's share of a session."""
        return session.theirs == hello.share and session.terms.pair == hello.pair

    def on_hello(self, hello: SecureHello, now: float) -> SecureHello | None:
        """Process a hello whose MAC is right and return the answer. Raises HelloError for an illegal share."""
        for session in self.sessions:
            if self._is_of(session, hello):
                if hello.settled and hello.answers == session.ours:
                    self.settle(session, now)
                return self._settling(session, asks=False) if hello.asks else None
        if self._answers_offer(hello):
            return self._make(hello, now)
        if not hello.asks or hello.pair not in self._by_name:
            return None
        lanes = self._has_lanes or hello.lanes
        return SecureHello(self._offered(hello.pair), hello.share, lanes=lanes, pair=hello.pair)

    def _make(self, hello: SecureHello, now: float) -> SecureHello | None:
        if self._has_lanes and not hello.lanes:
            raise HelloError("a hello of a NIC that does not know lanes")
        private, offer = self._offers.pop(hello.pair)  # good for one agreement, successful or not
        try:
            keys = self._by_name[hello.pair].agree(private, offer, hello.share)
        except ValueError:
            raise HelloError("a hello whose share is of small order") from None
        terms = SessionTerms(offer, hello.share, keys, hello.lanes, now, hello.pair)
        session = SecureSession(self._vni, terms, hello.settled, self._place)
        # Two sessions that were agreed on at once, by two pairs of keys, are both kept: each side may use another one.
        before = [
            other
            for other in self.sessions
            if other.settled or (session.settled and other.terms.pair != session.terms.pair)
        ]
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
