"""ARP neighbour cache of a node (RFC 826; RFC 1122, section 2.3.2).

A lookup of an unknown address causes up to `TRIES` requests, `RETRY_S` apart; after the last one the address has failed
and its users are told at once. An answer is valid for `LIFETIME_S`; the next lookup after that causes a new request,
and the old answer stays in use until the request has failed, so traffic never pauses. Mappings are learned only from
answers to our requests and from requests to us; the cache is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

RETRY_S = 0.5
TRIES = 6
LIFETIME_S = 60.0
MAX_ENTRIES = 1024


@dataclass(slots=True)
class _Neighbour:
    mac: bytes | None = None
    fresh_until: float = 0.0
    tries: int = 0
    """Requests sent since the last answer; 0 while none is outstanding."""
    next_try: float = 0.0


class Neighbours:
    """IP address to MAC address."""

    def __init__(self) -> None:
        self._entries: dict[int, _Neighbour] = {}
        self._asking: set[int] = set()
        self.changes = 0
        """How often an address that was known has changed, or was forgotten."""

    def lookup(self, ip: int, now: float) -> bytes | None:
        """Returns the MAC address, or None while it is unknown; a request for it is then due."""
        entry = self._entries.get(ip)
        if entry is None:
            self._evict()
            entry = self._entries[ip] = _Neighbour()
        if entry.tries == 0 and (entry.mac is None or now >= entry.fresh_until) and ip not in self._asking:
            entry.next_try = now
            self._asking.add(ip)
        return entry.mac

    def fresh_until(self, ip: int) -> float:
        """Returns until when `lookup` gives the same answer, unless `changes` changes; it may be over already."""
        entry = self._entries.get(ip)
        return 0.0 if entry is None or entry.mac is None else entry.fresh_until

    def known(self, ip: int) -> bytes | None:
        """Returns the MAC address if there is one, without requesting it."""
        entry = self._entries.get(ip)
        return None if entry is None else entry.mac

    def has(self, ip: int) -> bool:
        """Returns whether an address is known or was looked up: what a peer says of itself is noted."""
        return ip in self._entries

    def learn(self, ip: int, mac: bytes, now: float, unasked: bool) -> bool:
        """Records a mapping; one without a lookup only if `unasked`. Returns whether it was recorded."""
        entry = self._entries.get(ip)
        if entry is None:
            if not unasked:
                return False
            self._evict()
            entry = self._entries[ip] = _Neighbour()
        self._asking.discard(ip)
        self.changes += entry.mac not in (None, mac)
        entry.mac, entry.fresh_until, entry.tries = mac, now + LIFETIME_S, 0
        return True

    def due(self, now: float) -> tuple[list[int], list[int]]:
        """Returns the addresses to request now, and those that failed and were removed."""
        ask: list[int] = []
        failed: list[int] = []
        if not self._asking:
            return ask, failed
        for ip in sorted(self._asking):
            entry = self._entries[ip]
            if now < entry.next_try:
                continue
            if entry.tries == TRIES:
                failed.append(ip)
                self._asking.discard(ip)
                del self._entries[ip]
                self.changes += 1
                continue
            entry.tries += 1
            entry.next_try = now + RETRY_S
            ask.append(ip)
        return ask, failed

    def next_time(self) -> float | None:
        """When `due` is to be called next."""
        if not self._asking:
            return None
        return min((self._entries[ip].next_try for ip in self._asking), default=None)

    def _evict(self) -> None:
        if len(self._entries) >= MAX_ENTRIES:
            oldest = min(self._entries, key=lambda ip: self._entries[ip].fresh_until)
            del self._entries[oldest]
            self.changes += 1
            self._asking.discard(oldest)
