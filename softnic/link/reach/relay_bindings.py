"""The relay ports of other nodes that a node uses: it binds its address at each, again and again, which also keeps the
mapping of its NAT."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from softnic.link.reach.card import RelayPort
from softnic.underlay import Address

BIND_S = 10.0
REPEAT_S = 0.2
_TRIES = 25
"""Unanswered ones, after which a port is asked every SILENT_S."""
_SILENT_S = 2.0


@dataclass(slots=True)
class RelayUse:
    """Another node's port."""

    address: Address
    """As this node reaches it."""
    cookie: bytes
    due: float = -math.inf
    tries: int = 0
    bound: bool = False


class RelayBindings:
    """The ports in use."""

    def __init__(self) -> None:
        self._uses: dict[RelayPort, RelayUse] = {}

    def set(self, wanted: Iterable[tuple[RelayPort, Address, bytes]]) -> None:
        """Use these ports from now on, at their addresses; a cookie that may be valid there comes with each."""
        former, self._uses = self._uses, {}
        for port, address, cookie in wanted:
            use = former.get(port)
            self._uses[port] = use if use is not None and use.address == address else RelayUse(address, cookie)

    def refresh(self, port: RelayPort) -> None:
        """Bind the address at a port again at once: it may have changed."""
        if (use := self._uses.get(port)) is not None:
            use.bound, use.tries, use.due = False, 0, -math.inf

    def due(self, now: float) -> list[tuple[RelayPort, RelayUse]]:
        """Return what is to be bound now, and when it is repeated."""
        found = [(port, use) for port, use in self._uses.items() if now >= use.due]
        for _, use in found:
            use.tries += 1
            use.due = now + (REPEAT_S if use.tries < _TRIES else _SILENT_S)
        return found

    def next_time(self) -> float:
        """Return when `due` has something."""
        return min((use.due for use in self._uses.values()), default=math.inf)

    def on_challenge(self, port: RelayPort, cookie: bytes, now: float) -> None:
        """BindAddress again, with the cookie of the address that this port sees."""
        if (use := self._uses.get(port)) is not None and cookie != use.cookie:
            use.cookie, use.due = cookie, now

    def on_bound(self, port: RelayPort, now: float) -> None:
        """Note that the port knows this node."""
        if (use := self._uses.get(port)) is not None:
            use.bound, use.tries, use.due = True, 0, now + BIND_S

    def is_bound(self, port: RelayPort) -> bool:
        """Return whether the port has answered."""
        use = self._uses.get(port)
        return use is not None and use.bound
