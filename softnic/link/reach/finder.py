"""Finds and follows the peers of a link that encrypts: where they are is learned from authentic datagrams alone.

- A peer moves (an address translator gives it another port, its host gets another address) when something comes from an
  unknown address that it has just made: a hello that answers this node's latest share, or a frame with a higher counter
  than all before. A replay is neither. Other hellos are answered, by as many bytes as they have, and move nobody.
- A peer that was offered candidates is asked at all of them, and reached at the best that answers (candidates.py).

Datagrams from unknown addresses are examined within budgets; what is beyond is dropped, as in a flood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from softnic._native import ffi, lib
from softnic.link.endpoint import unpacked
from softnic.link.forwarding import ForwardingTable, LinkPeer
from softnic.link.reach.candidates import EQUAL_S, SILENT_S, STALE_S, TICK_S, Candidate, Reach
from softnic.link.secure import identity_hello
from softnic.link.secure.channel import SecureChannel
from softnic.link.token_bucket import TokenBucket
from softnic.packet.frames import Frames
from softnic.underlay import Address

LOOKED_PER_S, EXAMINED_PER_S = 20_000, 4_000
"""Datagrams from unknown addresses whose first bytes are looked at, in a microsecond, and those whose peer is known by
them and that are authenticated, in some."""
_BEGIN = 12
"""First bytes of a datagram, which name a session or the MAC of a peer."""
TRIED_PER_S = 4000
"""Peers that hellos of the network's key are tried with: they do not name their sender."""
OTHERS_PER_S = 1000
"""Datagrams that are not the link's own, as those of a meeting server, that are passed on."""

FOLLOW_S = 0.1
"""A peer that is heard from several unknown addresses by turns is followed no more often."""
MAX_FOREIGN = 32
"""Hellos from other peers' addresses that wait."""

OnDatagram = Callable[[Address, bytes, float], None]
"""Takes a datagram that is not the link's own: its source, its bytes, which begin with 0x13, and the time."""


@dataclass(frozen=True, slots=True)
class FinderEvents:
    """What takes the MACs of peers about which something was found."""

    on_moved: Callable[[bytes, Address, float], None]
    """It is reached at another address."""
    on_silent: Callable[[bytes, float], None]
    """A further queue does not hear it."""
    on_suspect: Callable[[bytes], None]
    """It does not answer for SUSPECT_S; called again and again."""
    on_back: Callable[[bytes, float], None]
    """It answers again after that."""


class PeerFinder:
    """The finder of one link.

    Parameters
    ----------
    table : ForwardingTable
        The peers of the link.
    channel : SecureChannel
        Their sessions.
    is_first : bool
        Whether the link is that of the first queue, which asks peers.
    send : callable
        Sends a sealed batch to a peer.
    events : FinderEvents
        Take what the finder finds.
    """

    def __init__(
        self,
        table: ForwardingTable,
        channel: SecureChannel,
        *,
        is_first: bool,
        send: Callable[[LinkPeer, Frames], None],
        events: FinderEvents,
    ) -> None:
        self._table, self._channel, self._is_first = table, channel, is_first
        self._send, self._events = send, events
        self._looked, self._examined = TokenBucket(LOOKED_PER_S), TokenBucket(EXAMINED_PER_S)
        self._tried, self._others = TokenBucket(TRIED_PER_S), TokenBucket(OTHERS_PER_S)
        self.passed_on = 0
        """Datagrams of the last batch that were passed on, as they are not the link's own."""
        self._next_tried = 0
        self._offered: dict[LinkPeer, None] = {}
        self._unasked: list[LinkPeer] = []
        """Peers that were offered candidates and are to be asked at once."""
        self._foreign: list[tuple[bytes, Address]] = []
        """Hellos from other peers' addresses. No peer moves while a batch is opened, whose sources are numbers."""
        self._tick_at = math.inf

    # --- candidates

    def offer(self, peer: LinkPeer, candidates: Sequence[Candidate]) -> None:
        """Reach a peer at the best of these candidates that answers. `advance` is due at once."""
        reach = peer.reach or Reach()
        reach.set(candidates)
        self._table.offer(peer, reach)
        self._offered[peer] = None
        self._unasked.append(peer)
        self._tick_at = min(self._tick_at, 0.0)

    def forget(self, peer: LinkPeer) -> None:
        """Note that a peer has left."""
        self._offered.pop(peer, None)
        self._unasked = [other for other in self._unasked if other is not peer]

    def next_time(self) -> float:
        """Return when `advance` is due; infinity: not before something happens."""
        return -math.inf if self._unasked or self._foreign else self._tick_at

    def advance(self, now: float) -> None:
        """Ask peers that are due."""
        foreign, self._foreign = self._foreign, []
        for hello in foreign:
            self._hear_foreign(*hello, now)
        unasked, self._unasked = self._unasked, []
        for peer in unasked:
            new = [] if peer.reach is None else peer.reach.take_new()
            if self._is_first and (peer.unheard or peer.since is None):
                self._channel.start_hello(peer, now)
            elif self._is_first:
                self._channel.probe(peer, [address for address in new if address != peer.address], now)
        if now < self._tick_at or not self._offered:
            return
        self._tick_at = now + TICK_S
        for peer in self._offered:
            self._look_after(peer, now)

    def _look_after(self, peer: LinkPeer, now: float) -> None:
        reach = peer.reach
        assert reach is not None
        sent_at, heard_at = self._channel.sent_at(peer), self._channel.heard_at(peer.address)
        if not peer.unheard and now >= heard_at + STALE_S and (other := self._heard_elsewhere(peer, now)):
            self._table.reach_at(peer, other, now)
            self._note_move(peer, now)
        elif not peer.unheard and reach.is_silent(sent_at, heard_at, now):
            if self._is_first:
                self._seek(peer, now)
            else:
                self._events.on_silent(peer.mac, now)
        elif peer.unheard and self._is_first and sent_at > now - SILENT_S:
            self._channel.start_hello(peer, now)
        if reach.suspects(heard_at, now):
            self._events.on_suspect(peer.mac)
        elif reach.is_back(self._channel.heard_at(peer.address), now):
            self._events.on_back(peer.mac, now)
        if not self._is_first:
            return
        if not peer.unheard:
            self._channel.probe(peer, reach.probes(peer.address, now), now)
        if reach.wants_keepalive(sent_at, now) and (frames := self._channel.keep_alive(peer, now)) is not None:
            self._send(peer, frames)

    def _heard_elsewhere(self, peer: LinkPeer, now: float) -> Address | None:
        """Return the best candidate of a peer that it was heard at just now."""
        assert peer.reach is not None
        heard = (each for each in peer.reach.candidates if self._channel.heard_at(each) > now - 2 * TICK_S)
        return peer.reach.best(each for each in heard if each != peer.address)

    def _seek(self, peer: LinkPeer, now: float) -> None:
        """Ask a peer at all its addresses; frames go to all of them until one answers."""
        self._table.seek(peer)
        self._channel.start_hello(peer, now)

    def seek_unheard(self, peer: LinkPeer, now: float) -> None:
        """Seek a peer that another queue does not hear, unless this one hears it."""
        heard_at = self._channel.heard_at(peer.address)
        if peer.reach is not None and not peer.unheard and now >= heard_at + SILENT_S:
            self._seek(peer, now)

    # --- what was heard

    def hear(self, peer: LinkPeer, place: int, now: float) -> None:
        """Note that frames of a peer came from the address at a place of `sorted_peers`."""
        if peer.reach is None:
            self._table.hear(peer, place, now)
        else:
            self._hear_at(peer, self._table.sorted_addresses()[place], now)

    def _hear_at(self, peer: LinkPeer, address: Address, now: float) -> None:
        reach = peer.reach
        assert reach is not None
        is_chosen = not peer.unheard and peer.since is not None
        is_equal = (
            is_chosen
            and address != peer.address
            and reach.is_equal(address, peer.address)
            and now >= max(self._channel.heard_at(peer.address), peer.since or now) + EQUAL_S
        )
        if not is_chosen or is_equal or reach.is_better(address, peer.address):
            self._table.reach_at(peer, address, now)
            self._note_move(peer, now)

    def on_fresh(self, peer: LinkPeer, address: Address, now: float) -> None:
        """Note that a peer has sent a hello that is no replay from an address."""
        if self._table.peer_at(address) is not peer:
            self._follow(peer, address, now)
        elif peer.reach is not None:
            self._hear_at(peer, address, now)

    def _follow(self, peer: LinkPeer, address: Address, now: float) -> None:
        if self._table.follow(peer, address, now):
            self._note_move(peer, now)

    def _note_move(self, peer: LinkPeer, now: float) -> None:
        if peer.reach is not None:
            peer.reach.on_moved(now)
        self._events.on_moved(peer.mac, peer.address, now)

    def take_way(self, peer: LinkPeer, address: Address, now: float) -> bool:
        """Reach a peer where another queue has heard it. Returns whether it was elsewhere."""
        is_there = peer.address == address and not peer.unheard
        if is_there or not self._table.follow(peer, address, now):
            return False
        if peer.reach is not None:
            peer.reach.on_moved(now)
        return True

    def note_foreign(self, hello: tuple[bytes, Address], now: float) -> None:
        """Take a hello that came from another peer's address, to be processed by `advance`, which is due at once."""
        if len(self._foreign) < MAX_FOREIGN and self._examined.take(now):
            self._foreign.append(hello)

    # --- strangers

    def examine(self, received: Any, data: Any, on_datagram: OnDatagram | None, now: float) -> bool:
        """Look at the datagrams of unknown sources that a batch has kept. Returns whether a peer has moved.

        If the batch has no frames, the caller lists those of peers that have moved, and opens them; `size` of what is
        not to be listed becomes 0.

        Parameters
        ----------
        received : sn_received
            The batch.
        data : uint8_t pointer
            Its memory.
        on_datagram : callable or None
            Takes datagrams that are not the link's own; without it they are dropped.
        now : float
            The time.
        """
        before = self._table.changes
        notes = received.frames > 0
        self.passed_on = 0
        for stranger in received.stranger[0 : received.strangers]:
            begin = bytes(ffi.buffer(data + stranger.offset, min(stranger.length, _BEGIN)))
            is_other = begin[0] == lib.SN_OTHER_DATAGRAM
            if is_other:
                stranger.size = 0
                is_due = self._others.take(now)
            else:
                is_due = self._looked.take(now) and self._may_be_known(begin) and self._examined.take(now)
            if not is_due:
                continue
            datagram = bytes(ffi.buffer(data + stranger.offset, stranger.length))
            source = unpacked(bytes(ffi.buffer(ffi.addressof(stranger, "from"))))
            if is_other:
                if on_datagram is not None:
                    self.passed_on += 1
                    on_datagram(source, datagram, now)
            elif self._table.peer_at(source) is None and self._examine(datagram, source, now, notes=notes):
                stranger.size = 0
        return self._table.changes != before

    def _may_be_known(self, begin: bytes) -> bool:
        """Return whether the first bytes of a datagram name a session or a peer, or say nothing about that."""
        if begin[0] == lib.SN_SECURE_FRAME:
            return self._channel.owner(begin) is not None
        if begin[0] == lib.SN_IDENTITY_HELLO:
            return self._table.configured(identity_hello.sender_of(begin)) is not None
        return True

    def _examine(self, datagram: bytes, source: Address, now: float, *, notes: bool) -> bool:
        """Look at one. Returns whether it is processed; without `notes` a frame is not."""
        kind, length = datagram[0], len(datagram)
        if kind == lib.SN_SECURE_FRAME:
            peer = self._channel.owner(datagram)
            if (
                peer is not None
                and now >= (peer.since or 0.0) + FOLLOW_S
                and self._channel.claim(datagram, now, notes=notes)
            ):
                self._follow(peer, source, now)
            return notes
        if kind == lib.SN_IDENTITY_HELLO and length == lib.SN_IDENTITY_HELLO_LENGTH:
            self._hear_foreign(datagram, source, now)
        elif kind == lib.SN_SECURE_HELLO and length == lib.SN_HELLO_LENGTH:
            self._try_all(datagram, source, now)
        return True

    def _hear_foreign(self, datagram: bytes, source: Address, now: float) -> None:
        """Process a hello of nodes' keys from an address that is not its sender's."""
        peer = self._table.configured(identity_hello.sender_of(datagram))
        if peer is not None and self._table.peer_at(source) is not peer:
            self._channel.hear_hello(peer, datagram, source, now)

    def _try_all(self, datagram: bytes, source: Address, now: float) -> None:
        """Try a hello of the network's key with one peer after another, each time from where the last one ended."""
        for peer in self._by_turns():
            if not self._tried.take(now) or self._channel.hear_hello(peer, datagram, source, now):
                return
            self._next_tried += 1

    def _by_turns(self) -> Iterable[LinkPeer]:
        peers = list(self._table.peers)
        start = self._next_tried % len(peers) if peers else 0
        return peers[start:] + peers[:start]
