"""What a node knows of one server, at one of its addresses: when to send next, and what it has learned from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from softnic.underlay import Address

REPEAT_S = 0.2
"""Between requests until all nodes are known."""
KEEP_S = 10.0
"""Between requests after that: it keeps the NAT's mapping."""
SILENT_TRIES = 25
"""A server that has answered none of these is asked every SILENT_S."""
SILENT_S = 2.0
ACKNOWLEDGE_S = 0.02
"""Between requests when there is something to tell, or to acknowledge."""


@dataclass(slots=True)
class ServerWay:
    """One address of a server."""

    server: int | bytes
    """Index in the token's servers, or the name of a node that relays (`card.RelayName`)."""
    address: Address
    port_of: Callable[[int], Address]
    """The address of another port of the same server."""
    tunnelled: bool = False
    cookie: bytes = b""
    seen: Address | None = None
    """The node's address as this server sees it."""
    registered: bool = False
    epoch: bytes = b""
    known: int = 0
    latest: int = 0
    tries: int = 0
    """Requests since the last answer."""
    due: float = -math.inf
    """When the next RegisterNode is sent."""
    asked: float = -math.inf
    """When the last one was sent."""
    relay_port: int | None = None
    """The node's own port at the server's relay."""
    allocate_due: float = math.inf
    allocate_asked: float = -math.inf
    allocate_tries: int = 0
    relay_refused: bool = False
    refusal: str = ""
    present: dict[bytes, tuple[Address, ...]] = field(default_factory=dict)
    """The nodes that the server has, and where it sees them."""

    @property
    def has_all(self) -> bool:
        """Whether everything that the server is known to have has arrived."""
        return self.registered and self.known >= self.latest

    @property
    def silent(self) -> bool:
        """Whether the server does not answer."""
        return self.tries >= SILENT_TRIES

    def on_request(self, now: float) -> bool:
        """Note that a RegisterNode is sent. Returns whether the server counts as silent from now on."""
        self.tries += 1
        self.asked = now
        self.due = now + (SILENT_S if self.silent else REPEAT_S)
        return self.tries == SILENT_TRIES

    def rest(self, now: float, interval: float = KEEP_S) -> None:
        """Ask again after a longer interval."""
        self.due = now + interval

    def ask_soon(self) -> None:
        """Send a RegisterNode now, or ACKNOWLEDGE_S after the last one."""
        self.due = min(self.due, self.asked + ACKNOWLEDGE_S)

    def learn(self, since: int, until: int, latest: int) -> bool:
        """Note that everything of revisions in (since, until] has arrived. Returns whether to tell the server."""
        before = self.known
        if since <= self.known:
            self.known = max(self.known, until)
        self.latest = max(self.latest, latest)
        return self.known > before or self.known < self.latest

    def forget(self, epoch: bytes) -> None:
        """Begin anew: the server has restarted, or had forgotten the job."""
        self.epoch = epoch
        self.known = self.latest = 0
        self.present.clear()
        self.relay_port = None
        self.relay_refused = False
        self.allocate_tries = 0


def same_host(address: Address) -> Callable[[int], Address]:
    """Return what gives the address of another port of a host."""
    return lambda port: (address[0], port)
