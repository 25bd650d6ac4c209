"""The nodes of a job by their cards: which of them are believed, and the overlay numbers that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softnic.link.reach.card import Card, CardError, CardSeal
from softnic.link.reach.numbers import overlay_numbers
from softnic.link.reach.token import Token


@dataclass(slots=True)
class CardCounters:
    """Each card that is not believed is in one of these."""

    cards_forged: int = 0
    """Not sealed by a node of the job, or for another key."""
    cards_stale: int = 0
    """Older than the one that is known."""
    cards_beyond: int = 0
    """Of a further node than the job has."""


class Roster:
    """The other nodes of a job.

    Parameters
    ----------
    token : Token
        The job.
    own : bytes
        The public key of this node.
    is_present : callable
        Whether a server has the node with this key; one that no server has makes room for another.
    """

    def __init__(self, token: Token, own: bytes, is_present: Callable[[bytes], bool]) -> None:
        self._most = token.nodes - 1
        self._seal = CardSeal(token)
        self._own, self._is_present = own, is_present
        self._cards: dict[bytes, Card] = {}
        self._sealed: dict[bytes, bytes] = {}
        self.counted = CardCounters()

    @property
    def cards(self) -> dict[bytes, Card]:
        """The newest card of each node, by public key."""
        return self._cards

    @property
    def complete(self) -> bool:
        """Whether all nodes of the job are known."""
        return len(self._cards) >= self._most

    def learn(self, key: bytes, sealed: bytes) -> bool:
        """Take a card that a server brought. Returns whether it is believed, newly or already."""
        if self._sealed.get(key) == sealed:
            return True
        try:
            card = self._seal.open(sealed, key)
        except CardError:
            self.counted.cards_forged += 1
            return False
        known = self._cards.get(key)
        if known is not None and card.serial <= known.serial:
            self.counted.cards_stale += 1
            return True
        if known is None and not self._has_room():
            self.counted.cards_beyond += 1
            return False
        self._cards[key], self._sealed[key] = card, sealed
        return True

    def _has_room(self) -> bool:
        if len(self._cards) < self._most:
            return True
        gone = next((each for each in self._cards if not self._is_present(each)), None)
        if gone is not None:
            del self._cards[gone], self._sealed[gone]
        return gone is not None

    def numbers(self, claim: int | None) -> dict[bytes, int]:
        """Return the overlay numbers of all nodes, of which this one claims a number; none until all are known."""
        if not self.complete:
            return {}
        claims = {key: card.number for key, card in self._cards.items()}
        return overlay_numbers({**claims, self._own: claim})
