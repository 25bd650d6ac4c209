"""What a further queue of a NIC knows of a handshake, which the first queue has with the peer (handshake.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softnic.link.secure.handshake import MAX_RETRY_S, RETRY_S, TRIES
from softnic.link.secure.session import EXPIRE_S, QueuePlace, SecureSession, Sessions, SessionTerms

Tell = Callable[[bytes, bytes, float], None]
"""Posts to the first queue what concerns the node that has this MAC, and the session of this share of the NIC's."""


@dataclass(slots=True)
class Leader:
    """The first queue, as soon as it is known."""

    start: Tell = lambda _mac, _share, _now: None
    """Agree on another session in the place of this one, if there is any."""
    settle: Tell = lambda _mac, _share, _now: None
    """The node has this session."""


class FollowedHandshake(Sessions):
    """The sessions that the first queue has agreed on with the node that has this MAC."""

    def __init__(
        self, vni: int, mac: bytes, place: QueuePlace, leader: Leader, index: dict[bytes, Sessions] | None = None
    ) -> None:
        super().__init__(index)
        self._vni, self._mac, self._place, self._leader = vni, mac, place, leader
        self._made: dict[SessionTerms, SecureSession] = {}
        """Of each terms one, until they expire: a second one would use its counters again."""
        self._newest = b""
        """The share of the newest session, which may be used up."""
        self._tries = 0
        self.due: float | None = None
        """When to ask again (`advance`)."""

    def start(self, now: float) -> None:
        """Ask for a new session, unless one was asked for."""
        if self.due is None:
            self._tries = 0
            self._ask(now)

    def advance(self, now: float) -> None:
        """Ask again, if it is due; no more after TRIES."""
        if self.due is None or now < self.due:
            return
        if self._tries >= TRIES:
            self.due = None
        else:
            self._ask(now)

    def _ask(self, now: float) -> None:
        self.due = now + min(MAX_RETRY_S, RETRY_S * 2**self._tries)
        self._tries += 1
        self._leader.start(self._mac, self._newest, now)

    def adopt(self, agreed: Sequence[tuple[SessionTerms, bool]], now: float) -> None:
        """Use what the first queue has agreed on, the newest first, each with whether the peer is known to have it."""
        self._made = {terms: session for terms, session in self._made.items() if now < session.c.expires_at}
        sessions = []
        for terms, settled in agreed:
            if now < terms.made_at + EXPIRE_S:
                session = self._made.get(terms) or SecureSession(self._vni, terms, settled, self._place)
                session.c.settled = session.settled or settled
                self._made[terms] = session
                sessions.append(session)
        if sessions and sessions[0].ours != self._newest:
            self._newest, self.due = sessions[0].ours, None
        self.use(sessions)

    def settle(self, session: SecureSession, now: float) -> None:
        """Mark a session as known to the peer."""
        if not session.settled:
            session.c.settled = True
            self._leader.settle(self._mac, session.ours, now)
