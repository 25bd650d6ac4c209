"""What a meeting server remembers of a job: its nodes, their cards and addresses, in the order of their changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import msgspec

from softnic.link.reach.messages import MOST_BYTES, JobEntry, pack_address
from softnic.link.reach.token import Grant
from softnic.link.token_bucket import TokenBucket
from softnic.underlay import Address

MOST_CONTACTS = 4
"""Addresses of one node: by IPv4, by IPv6, by a tunnel, and one that it has just left."""
SILENT_S = 60.0
"""A node that has not been heard for this time is forgotten."""
ANSWER_RATE, ANSWER_BURST = 512e3, 64e3
"""Limits of what is sent to one address: bytes/s, and bytes."""
ENTRIES_BYTES = MOST_BYTES - 160
"""What a JobState has room for, besides its header and the other fields."""
_MOST_CHUNKS = 1024
_encoder = msgspec.msgpack.Encoder()
_ENTRY_BYTES = 8
"""Of msgpack around the fields of an entry."""


@dataclass(slots=True)
class Contact:
    """An address of a node that the node has proven."""

    sequence: int
    """Of the node's newest message from here; others are replays."""
    heard: float
    known: int = 0
    """The node has all entries up to this revision."""
    sent: int = 0
    """Revision of the job when something was last sent here."""
    pushes: int = 0
    """Unanswered ones of that revision."""
    push_at: float = 0.0
    """When the next one is due."""
    budget: TokenBucket = field(default_factory=lambda: TokenBucket(ANSWER_RATE, ANSWER_BURST))


@dataclass(slots=True)
class JobNode:
    """A node of a job."""

    card: bytes
    sequence: int
    """Of the message that had the card."""
    revision: int = 0
    contacts: dict[Address, Contact] = field(default_factory=dict)

    def seen(self) -> list[bytes]:
        """Return its addresses, the one that appeared last first, as messages have them."""
        return [packed for each in reversed(self.contacts) if (packed := pack_address(each))]


class Job:
    """The nodes of one job, by public key. `epoch`: 8 bytes that no other job of any server has."""

    def __init__(self, grant: Grant, admission: bytes, epoch: bytes) -> None:
        self.grant = grant
        self.packed = grant.pack()
        self.admission = admission
        self.epoch = epoch
        self.revision = 0
        self.nodes: dict[bytes, JobNode] = {}
        self._order: dict[bytes, int] = {}
        """Revision of each node, and of those that have gone, ascending."""
        self._chunks: dict[int, tuple[list[JobEntry], int]] = {}
        """What `chunk` has found since the last change."""
        self.flush_at = math.inf
        """When changes are pushed."""

    def contact(self, key: bytes, address: Address) -> Contact | None:
        """Return what is known of a node at an address."""
        node = self.nodes.get(key)
        return None if node is None else node.contacts.get(address)

    def hear(self, key: bytes, address: Address, card: bytes, sequence: int, now: float) -> bool:
        """Note a node, which there is room for, at an address that it has proven. Returns whether that is news."""
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = JobNode(card, sequence)
            news = True
        else:
            news = sequence > node.sequence and node.card != card
            if sequence > node.sequence:
                node.card, node.sequence = card, sequence
        contact = node.contacts.get(address)
        if contact is None:
            if len(node.contacts) >= MOST_CONTACTS:
                del node.contacts[min(node.contacts, key=lambda each: node.contacts[each].heard)]
            node.contacts[address] = Contact(sequence, now)
            news = True
        else:
            contact.sequence, contact.heard = sequence, now
        if news:
            self._changed(key)
        return news

    def remove(self, key: bytes) -> None:
        """Forget a node that has left."""
        del self.nodes[key]
        self._changed(key)

    def forget_silent(self, now: float) -> list[bytes]:
        """Forget addresses that are silent, and nodes without one. Returns the keys of these."""
        gone = []
        for key, node in list(self.nodes.items()):
            silent = [each for each, contact in node.contacts.items() if now - contact.heard >= SILENT_S]
            for address in silent:
                del node.contacts[address]
            if not node.contacts:
                del self.nodes[key]
                gone.append(key)
            if silent:
                self._changed(key)
        left = [key for key in self._order if key not in self.nodes]
        for key in left[: max(0, len(left) - self.grant.nodes)]:
            del self._order[key]
        return gone

    def _changed(self, key: bytes) -> None:
        self.revision += 1
        self._chunks.clear()
        self._order.pop(key, None)
        self._order[key] = self.revision
        if key in self.nodes:
            self.nodes[key].revision = self.revision

    def chunk(self, since: int) -> tuple[list[JobEntry], int]:
        """Return the first entries behind a revision, as many as one message has room for, and the revision up to
        which they are all.

        The entries are encoded already (msgspec.Raw): many nodes get the same ones.
        """
        if since not in self._chunks:
            if len(self._chunks) >= _MOST_CHUNKS:
                self._chunks.clear()
            entries, until = self._first(since)
            self._chunks[since] = cast(list[JobEntry], msgspec.Raw(_encoder.encode(entries))), until
        return self._chunks[since]

    def _first(self, since: int) -> tuple[list[JobEntry], int]:
        entries: list[JobEntry] = []
        left = ENTRIES_BYTES
        until = since
        for key, revision in self._behind(since):
            entry = self._entry(key)
            left -= len(entry.card) + 32 + _ENTRY_BYTES + sum(2 + len(each) for each in entry.seen)
            if left < 0 or len(entries) == 64:
                return entries, until
            entries.append(entry)
            until = revision
        return entries, self.revision

    def _behind(self, since: int) -> Iterator[tuple[bytes, int]]:
        return (each for each in self._order.items() if each[1] > since)

    def _entry(self, key: bytes) -> JobEntry:
        node = self.nodes.get(key)
        return JobEntry(key, b"", []) if node is None else JobEntry(key, node.card, node.seen())
