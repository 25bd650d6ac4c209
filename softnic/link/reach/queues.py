"""Where the peers of a NIC are, for all of its queues: one queue learns it from a datagram and tells the others.

The queues' links share a port, and each examines what the kernel passes to it. Only the first asks peers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from softnic.link.forwarding import ForwardingTable, LinkPeer
from softnic.link.reach.finder import FinderEvents, PeerFinder
from softnic.link.secure.channel import SecureChannel
from softnic.packet.frames import Frames
from softnic.underlay import Address

Post = Callable[[Callable[[], object]], None]
"""Has a queue call a function between two turns."""

MAX_NOTED = 1024
"""Nodes that have moved and that nobody has asked for; those beyond are not noted."""


class QueueWays:
    """The ways that one queue knows.

    Parameters
    ----------
    table : ForwardingTable
        The peers of the queue's link.
    channel : SecureChannel
        Their sessions.
    is_first : bool
        Whether it is the first queue.
    on_change : callable
        Takes a peer that has another address, and the time.
    send : callable
        Sends a sealed batch to a peer.
    on_suspect : callable
        Takes the MAC of a peer that does not answer (PeerFinder).
    """

    def __init__(
        self,
        table: ForwardingTable,
        channel: SecureChannel,
        *,
        is_first: bool,
        on_change: Callable[[LinkPeer, float], object],
        send: Callable[[LinkPeer, Frames], None],
        on_suspect: Callable[[bytes], None],
    ) -> None:
        self._table, self._on_change = table, on_change
        self._first: tuple[QueueWays, Post] | None = None
        """The first queue's, and what posts to its thread; None: this is the first."""
        self._others: Sequence[tuple[QueueWays, Post]] = ()
        """Those of the further queues, if this is the first."""
        self._moved: list[tuple[bytes, float]] = []
        self.moves = 0
        """How often something authentic told this queue where a peer is reached from then on."""
        self.finder = PeerFinder(
            table,
            channel,
            is_first=is_first,
            send=send,
            events=FinderEvents(self._on_moved, self._on_silent, on_suspect, self.note_back),
        )

    def take_moved(self) -> Sequence[tuple[bytes, float]]:
        """Return and forget the nodes that were found at another address, or answer again, since the last call, with
        the time."""
        moved, self._moved = self._moved, []
        return moved

    def note_back(self, mac: bytes, now: float) -> None:
        """Note that a node answers again, or that there is reason to think so."""
        if len(self._moved) < MAX_NOTED:
            self._moved.append((mac, now))

    def _note(self, mac: bytes, now: float) -> None:
        self.note_back(mac, now)
        peer = self._table.configured(mac)
        if peer is not None:
            self._on_change(peer, now)

    def lead(self, others: Sequence[tuple[QueueWays, Post]]) -> None:
        """Tell further queues where peers are."""
        self._others = others

    def follow(self, first: QueueWays, post: Post) -> None:
        """Tell the first queue where peers are."""
        self._first = first, post

    def _on_moved(self, mac: bytes, address: Address, now: float) -> None:
        self.moves += 1
        self._note(mac, now)
        if self._first is not None:
            first, post = self._first
            post(partial(first._take, mac, address, now))
        self._tell_others(mac, address, now)

    def _tell_others(self, mac: bytes, address: Address, now: float) -> None:
        for other, post in self._others:
            post(partial(other._take, mac, address, now))

    def _take(self, mac: bytes, address: Address, now: float) -> None:
        """Reach a node where another queue has heard it."""
        peer = self._table.configured(mac)
        if peer is not None and self.finder.take_way(peer, address, now):
            self._note(mac, now)
            self._tell_others(mac, address, now)

    def _on_silent(self, mac: bytes, now: float) -> None:
        if self._first is not None:
            first, post = self._first
            post(partial(first._seek, mac, now))

    def _seek(self, mac: bytes, now: float) -> None:
        peer = self._table.configured(mac)
        if peer is not None:
            self.finder.seek_unheard(peer, now)
