"""ARP (RFC 826) and the neighbour cache of one node.

The cache asks for an address when somebody wants to send to it: `TRIES` requests, `RETRY_S` apart, and then the
address has failed, which its users learn at once. An answer holds for `LIFETIME_S`; after that the next user causes
a new question, and the old answer stays good until that question has failed too, so traffic never pauses for it.
Mappings are learned only from answers to our questions and from questions put to us; the cache is bounded.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from softnic.packet.ethernet import ParseError

REQUEST = 1
REPLY = 2
RETRY_S = 0.5
TRIES = 6
LIFETIME_S = 60.0
MAX_ENTRIES = 1024
_PACKET = struct.Struct("!HHBBH6sI6sI")
_ETHERNET = 1
_IPV4 = 0x0800


class Arp(NamedTuple):
    operation: int
    sender_mac: bytes
    sender_ip: int
    target_mac: bytes
    target_ip: int


def parse(payload: bytes) -> Arp:
    """Raises ParseError for anything but an Ethernet/IPv4 request or reply from a unicast MAC address."""
    if len(payload) < _PACKET.size:
        raise ParseError("an ARP packet cut short")
    hardware, protocol, hardware_size, protocol_size, *fields = _PACKET.unpack_from(payload)
    packet = Arp(*fields)
    if (hardware, protocol, hardware_size, protocol_size) != (_ETHERNET, _IPV4, 6, 4):
        raise ParseError("an ARP packet that is not about Ethernet and IPv4")
    if packet.operation not in (REQUEST, REPLY) or packet.sender_mac[0] & 1:
        raise ParseError("an ARP packet with a wrong operation or sender")
    return packet


def build(packet: Arp) -> bytes:
    return _PACKET.pack(_ETHERNET, _IPV4, 6, 4, *packet)


@dataclass(slots=True)
class _Neighbour:
    mac: bytes | None = None
    fresh_until: float = 0.0
    tries: int = 0
    """Requests sent since the last answer; 0 while none is under way."""
    next_try: float = 0.0


class Neighbours:
    """IP address to MAC. `due` hands out the questions to send and the addresses that failed."""

    def __init__(self) -> None:
        self._entries: dict[int, _Neighbour] = {}
        self._asking: set[int] = set()

    def lookup(self, ip: int, now: float) -> bytes | None:
        """The MAC, or None while it is not known; asks for it (see `due`) if nobody has."""
        entry = self._entries.get(ip)
        if entry is None:
            self._make_place()
            entry = self._entries[ip] = _Neighbour()
        if entry.tries == 0 and (entry.mac is None or now >= entry.fresh_until) and ip not in self._asking:
            entry.next_try = now
            self._asking.add(ip)
        return entry.mac

    def known(self, ip: int) -> bytes | None:
        """The MAC, if there is one."""
        entry = self._entries.get(ip)
        return None if entry is None else entry.mac

    def learn(self, ip: int, mac: bytes, now: float, unasked: bool) -> bool:
        """Notes a mapping; one that nobody has asked for only if `unasked`. Returns whether it was noted."""
        entry = self._entries.get(ip)
        if entry is None:
            if not unasked:
                return False
            self._make_place()
            entry = self._entries[ip] = _Neighbour()
        self._asking.discard(ip)
        entry.mac, entry.fresh_until, entry.tries = mac, now + LIFETIME_S, 0
        return True

    def due(self, now: float) -> tuple[list[int], list[int]]:
        """Addresses to ask for now, and addresses given up (forgotten: the next lookup starts afresh)."""
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
                continue
            entry.tries += 1
            entry.next_try = now + RETRY_S
            ask.append(ip)
        return ask, failed

    def next_time(self) -> float | None:
        if not self._asking:
            return None
        return min((self._entries[ip].next_try for ip in self._asking), default=None)

    def _make_place(self) -> None:
        if len(self._entries) >= MAX_ENTRIES:
            oldest = min(self._entries, key=lambda ip: self._entries[ip].fresh_until)
            del self._entries[oldest]
            self._asking.discard(oldest)
