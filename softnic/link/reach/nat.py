"""Which kind of NAT a node is behind, by the tests of RFC 3489, section 10.1, and RFC 5780, section 4.

1. Mapping: the server's second port is asked which address it sees.
2. Filtering: the server is asked to answer from its third port, and from its other address if it has one. The node
   sends nothing to these, before or after: a datagram that a NAT did not expect may take the place of a mapping to its
   sender.

A server with one address cannot tell a full cone from a restricted one: it is called restricted.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from softnic import underlay
from softnic.underlay import Address

NatKind = Literal["unknown", "open", "full cone", "restricted", "port-restricted", "symmetric", "no UDP"]
REPEAT_S = 0.2
TRIES = 5
"""Of each test; an answer ends it."""
FROM_HERE, FROM_PORT, FROM_ADDRESS = range(3)
"""Where an answer is asked from: the port that is asked, the server's third port, its other address."""


def nat_kind(
    own: Collection[Address], seen: Address, seen_by_second: Address | None, *, port: bool, address: bool
) -> NatKind:
    """Return the kind of NAT.

    Parameters
    ----------
    own : collection of addresses
        The addresses of the node's socket.
    seen, seen_by_second : tuple of str and int
        What the server's main port, and its second one, saw.
    port, address : bool
        Whether answers from the server's third port, and from its other address, arrived.
    """
    if seen_by_second is not None and seen_by_second != seen:
        return "symmetric"
    if seen in own or underlay.is_local(seen[0]):  # a server on this host
        return "open" if port or address else "port-restricted"
    if address:
        return "full cone"
    return "restricted" if port else "port-restricted"


class NatTest:
    """The tests with one server, from the time when it sees the node's address as `seen`."""

    def __init__(self, seen: Address, now: float) -> None:
        self.seen = seen
        self._arrived: set[int] = set()
        self._refused: set[int] = set()
        self._second: Address | None = None
        self._tries = 0
        self._filtering = False
        self._at = now

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self._filtering and (self._tries > TRIES or not self._unanswered())

    def next_time(self) -> float:
        """Return when `due` has something, or the result may be there."""
        return math.inf if self.done else self._at

    def due(self, now: float) -> list[int]:
        """Return the questions that are to be asked now: FROM_HERE at the server's second port, FROM_PORT and
        FROM_ADDRESS at its main one."""
        if now < self._at or self.done:
            return []
        if not self._filtering and (self._second is not None or self._tries >= TRIES):
            self._filtering, self._tries = True, 0
        self._tries += 1
        self._at = now + REPEAT_S
        if not self._filtering:
            return [FROM_HERE]
        return self._unanswered() if self._tries <= TRIES else []

    def _unanswered(self) -> list[int]:
        """Return the questions of the second test that are not answered."""
        return [how for how in (FROM_PORT, FROM_ADDRESS) if how not in self._arrived | self._refused]

    def on_answer(self, how: int, seen: Address | None, now: float) -> None:
        """Note an answer."""
        self._arrived.add(how)
        if how == FROM_HERE and not self._filtering:
            self._second, self._at = seen, now

    def on_refused(self, how: int) -> None:
        """Note that the server cannot answer in this way."""
        self._refused.add(how)

    def kind(self, own: Collection[Address]) -> NatKind:
        """Return the kind of NAT of a node whose socket has these addresses, or that it is unknown."""
        if not self.done:
            return "unknown"
        return nat_kind(
            own, self.seen, self._second, port=FROM_PORT in self._arrived, address=FROM_ADDRESS in self._arrived
        )
