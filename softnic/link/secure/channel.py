"""Encrypts a link: frames become datagrams that only their peer can read, and only such datagrams become frames.

handshake.py decides about the sessions with one peer. C seals and opens in batches (native/nic/secure_channel.h), and
asks here for what is decision: hellos, dropped datagrams, frames without a session.

Each queue of a NIC has a channel. Only the first queue exchanges hellos. It tells the other queues of each new session,
and they tell it when they need another one, or see that a peer has one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.link.forwarding import LinkPeer
from softnic.link.rate_limited_log import RateLimitedLog
from softnic.link.received_batch import ReceivedBatch
from softnic.link.secure import libcrypto
from softnic.link.secure.followed import FollowedHandshake, Leader, Tell
from softnic.link.secure.handshake import Handshake, RandomBytes
from softnic.link.secure.hello import HelloError, SecureHello
from softnic.link.secure.identity import NodeIdentity
from softnic.link.secure.key_ring import AnyKeys, KeyRing
from softnic.link.secure.session import ONLY_QUEUE, QueuePlace, SecureSession, Sessions, SessionTerms
from softnic.link.token_bucket import TokenBucket
from softnic.packet.frames import Frames
from softnic.underlay import Address

OVERHEAD: int = lib.SN_SECURE_OVERHEAD
"""Bytes that encryption adds to a frame."""
WAITING_BYTES = 1 << 17
"""Limit of frames to one peer that wait for a session."""
HELLOS_PER_S = 32
"""Rate and burst of one peer's hellos that are answered though they may be replayed. Fresh ones always are."""
OWN_HELLO_S = 2.0
"""Minimum interval of own hellos when there are more: the answer to an own hello is fresh."""
_SESSION_HEADER = 8
"""Bytes at the start of a sealed frame that name its session."""
_OUT_BYTES, _OUT_FRAMES = 1 << 19, 1 << 12
"""Limits of one encrypted batch."""

Agreed = tuple[tuple[SessionTerms, bool], ...]
"""The sessions with a peer, the newest first, each with whether the peer is known to have it."""
Adopt = Callable[[bytes, Agreed, float], None]
"""Has another queue use the sessions with the node that has this MAC."""


@dataclass(frozen=True, slots=True, repr=False)
class EncryptionSettings:
    """Keys and address of a node that encrypts its wire."""

    key: bytes
    """The network's key; empty: there is none."""
    own: bytes
    """The MAC of the node."""
    random_bytes: RandomBytes = os.urandom
    """Source of private keys."""
    place: QueuePlace = ONLY_QUEUE
    """The queue whose wire it is."""
    ring: KeyRing | None = None
    """The keys of nodes, of this link alone; None: only the network's key."""


@dataclass(slots=True)
class SecureCounters:
    """Each datagram that is not delivered is in exactly one of these, or of the link's own counters."""

    sessions: int = 0
    """Sessions agreed on."""
    dropped_wrong_key: int = 0
    """Hellos from a peer's address under another key."""
    dropped_revoked: int = 0
    """From a peer whose key is revoked, until it has a session by another one."""
    dropped_plaintext: int = 0
    """VXLAN from a peer's address."""
    dropped_forged: int = 0
    """Altered in transit, or not encrypted by the peer."""
    dropped_replayed: int = 0
    """Received before, or too far behind later ones to tell."""
    dropped_no_session: int = 0
    """Of an unknown session: the peer's from before a restart, for example."""
    dropped_hello: int = 0
    """Hellos beyond HELLOS_PER_S, or with illegal fields."""
    dropped_malformed: int = 0
    """Neither hellos nor frames, by their first byte or length."""
    dropped_waiting: int = 0
    """Outgoing frames whose session did not come in time."""
    dropped_no_key: int = 0
    """Outgoing frames to a peer that this NIC has no keys with."""


@dataclass(slots=True, eq=False)
class _State:
    """What is known about one peer."""

    handshake: Handshake | FollowedHandshake
    revoked: bool = False
    """Its keys, or those of its last session, are revoked."""
    told: Agreed = ()
    """What the other queues were told of its sessions."""
    waiting: list[Frames] = field(default_factory=list)
    waiting_bytes: int = 0
    hellos: TokenBucket = field(default_factory=lambda: TokenBucket(HELLOS_PER_S))
    """Possibly replayed ones that may be answered."""
    own_hello_at: float = float("-inf")
    """When the next own hello is allowed because of an exhausted budget."""


class SecureChannel:
    """The sessions of one node with its peers.

    Parameters
    ----------
    encryption : EncryptionSettings
        Key and identity of the node.
    vni : int
        VXLAN network identifier.
    received : ReceivedBatch
        Where datagrams are received, and opened.
    send_hello : callable
        Sends a hello datagram to a peer, once: to an address, or where the peer is sought or reached.
    on_fresh : callable
        Takes a peer, and the address from which it has sent a hello that is no replay.
    log : RateLimitedLog
        Takes reports about peers with another key or none.

    Raises
    ------
    CryptoError
        If libcrypto is missing.
    """

    def __init__(
        self,
        encryption: EncryptionSettings,
        vni: int,
        received: ReceivedBatch,
        *,
        send_hello: Callable[[LinkPeer, bytes, Address | None], None],
        on_fresh: Callable[[LinkPeer, Address, float], None],
        log: RateLimitedLog,
    ) -> None:
        self._encryption, self._vni = encryption, vni
        self._ring = encryption.ring or KeyRing(encryption.key)
        self._send_hello, self._on_fresh = send_hello, on_fresh
        self._log = log
        self._cipher = libcrypto.cipher()
        self._states: dict[LinkPeer, _State] = {}
        self._by_session: dict[bytes, Sessions] = {}
        self._owners: dict[Sessions, LinkPeer] = {}
        self._active_handshakes: set[LinkPeer] = set()
        """Peers whose handshake has a timer running."""
        self._out = Frames(
            np.empty(_OUT_BYTES, np.uint8), np.empty(_OUT_FRAMES, np.uint32), np.empty(_OUT_FRAMES, np.uint32)
        )
        """Buffer of the latest encrypted batch."""
        self.c: Any = ffi.new("sn_secure_channel *")
        """What C works with."""
        self.c.cipher = self._cipher
        self.c.out, self.c.offsets, self.c.lengths = self._out.arrays
        self.c.size, self.c.frames = _OUT_BYTES, _OUT_FRAMES
        self._batch = batch = self.c.batch
        batch.data, batch.offsets, batch.lengths = received.memory
        batch.sources, batch.received = received.sources, received.found
        self._peers: Sequence[LinkPeer] = ()
        """In C's order."""
        self._addresses: Sequence[Address] = ()
        """Theirs, in the same order."""
        self._places: dict[Address, int] = {}
        self._heard: Any = ffi.new("double[]", 0)
        """When each of them was last heard."""
        self._listed: tuple[Any, Any, list[_State]] | None = None
        """What C knows the peers by, kept for it."""
        self.counted = SecureCounters()
        self._released: list[tuple[LinkPeer, Frames]] = []
        """Frames that waited for a session which now exists."""
        self._followers: Sequence[Adopt] = ()
        self._leader = Leader()

    def check(self, peer: LinkPeer, mac: bytes) -> None:
        """Raise OSError for a second node at one address: sessions are with nodes, identified by their address."""
        if peer.mac != mac:
            raise OSError(
                errno.EADDRINUSE, f"{peer} is the address of another node: with a key, each node needs its own"
            )

    def _state_of(self, peer: LinkPeer) -> _State:
        state = self._states.get(peer)
        if state is None:
            revoked = self._ring.is_revoked(peer.mac) and not self._ring.can_reach(peer.mac)
            state = self._states[peer] = _State(self._handshake(peer), revoked)
            self._owners[state.handshake] = peer
        return state

    def _handshake(self, peer: LinkPeer) -> Handshake | FollowedHandshake:
        place = self._encryption.place
        if place.number == 0:
            return Handshake(
                self._pairs(peer.mac), self._vni, self._encryption.random_bytes, place.queues, self._by_session
            )
        return FollowedHandshake(self._vni, peer.mac, place, self._leader, self._by_session)

    def _pairs(self, mac: bytes) -> list[AnyKeys]:
        return self._ring.with_peer(self._vni, self._encryption.own, mac)

    # --- keys of nodes

    @property
    def has_identity(self) -> bool:
        """Whether the node has private keys."""
        return self._ring.has_identity

    def keys_of(self, mac: bytes) -> tuple[bytes, ...]:
        """Return the public keys that a peer is known by, the newest first."""
        return self._ring.keys_of(mac)

    def set_keys(self, mac: bytes, keys: tuple[bytes, ...], now: float) -> None:
        """Know the node that has this MAC by these public keys. Sessions by others end."""
        self._ring.set_keys(mac, keys)
        self._renew(now, lambda peer: peer.mac == mac)

    def replace_identity(self, identity: NodeIdentity, now: float) -> None:
        """Use these private keys from now on. Sessions go on."""
        self._ring.replace_identity(identity)
        self._renew(now, lambda peer: bool(self._ring.keys_of(peer.mac)))

    def revoke(self, key: bytes, now: float) -> list[bytes]:
        """Use a public key no more: sessions by it end at once. Returns the MACs of peers that this leaves no key with.

        Raises OSError beyond a limit of revoked keys.
        """
        before = [peer.mac for peer in self._states if self._ring.can_reach(peer.mac)]
        self._ring.revoke(key)
        self._renew(now, lambda _peer: True)
        return [mac for mac in before if not self._ring.can_reach(mac)]

    def _renew(self, now: float, concerns: Callable[[LinkPeer], bool]) -> None:
        """Use the keys that the ring has from now on, with the peers that a change concerns."""
        for peer, state in self._states.items():
            if not concerns(peer):
                continue
            if isinstance(state.handshake, Handshake):
                state.handshake.set_pairs(self._pairs(peer.mac))
            ended = state.handshake.keep(partial(self._ring.allows, peer.mac))
            reachable = self._ring.can_reach(peer.mac)
            state.revoked = self._ring.is_revoked(peer.mac) and (bool(ended) or state.revoked or not reachable)
            if not reachable:
                self._drop_waiting(state)
            self._start_hello(peer, state, None, now)

    def use(self, peers: Sequence[LinkPeer], keys: Any, addresses: Sequence[Address]) -> None:
        """Have C find these peers by these keys, which are those of the addresses (ForwardingTable.sorted_peers)."""
        if self._listed is not None and self._listed[0] is keys:
            return
        states = [self._state_of(peer) for peer in peers]
        listed = ffi.new("sn_secure_peer *[]", [state.handshake.c for state in states])
        heard = dict(zip(self._addresses, self._heard, strict=True))
        self._heard = ffi.new("double[]", [heard.get(address, 0.0) for address in addresses])
        self.c.keys, self.c.peers, self.c.peer_count, self.c.heard_at = keys, listed, len(peers), self._heard
        self._peers, self._addresses, self._listed = peers, list(addresses), (keys, listed, states)
        self._places = {address: place for place, address in enumerate(addresses)}

    def forget(self, peer: LinkPeer) -> None:
        """End a peer's sessions and drop the frames that wait for one: the peer has left its address."""
        state = self._states.pop(peer, None)
        if state is not None:
            state.handshake.end()
            del self._owners[state.handshake]
            self._drop_waiting(state)
        self._active_handshakes.discard(peer)

    # --- other queues

    def share(self, inboxes: Any) -> None:
        """Pass datagrams on to the queue that opens them: `inboxes` is an array with one of each."""
        queues = self.c.queues
        self._passed = ffi.new("sn_source[]", lib.SN_INBOX_FRAMES)
        queues.own, queues.count = self._encryption.place
        queues.inboxes, queues.sources = inboxes, self._passed

    def lead(self, followers: Sequence[Adopt]) -> None:
        """Tell other queues of all sessions."""
        self._followers = followers

    def follow(self, start: Tell, settle: Tell) -> None:
        """Use the sessions that the first queue agrees on, which is asked by these."""
        self._leader.start, self._leader.settle = start, settle

    def _is_allowed(self, peer: LinkPeer, session: tuple[SessionTerms, bool]) -> bool:
        return self._ring.allows(peer.mac, session[0].pair)

    def _tell(self, peer: LinkPeer, state: _State, now: float) -> None:
        agreed = tuple((session.terms, session.settled) for session in state.handshake.sessions)
        if self._followers and agreed != state.told:
            state.told = agreed
            for adopt in self._followers:
                adopt(peer.mac, agreed, now)

    def adopt(self, peer: LinkPeer, agreed: Agreed, now: float) -> None:
        """Use the sessions with a peer that the first queue has agreed on."""
        state = self._state_of(peer)
        assert isinstance(state.handshake, FollowedHandshake)
        allowed = [session for session in agreed if self._is_allowed(peer, session)]
        state.handshake.adopt(allowed, now)
        state.revoked = state.revoked and not allowed
        self._release(peer, state, now)

    def start(self, peer: LinkPeer, share: bytes, now: float) -> None:
        """Agree on a session in the place of that of this share (empty: none), which is the newest that another queue
        has."""
        state = self._state_of(peer)
        sessions = state.handshake.sessions
        if sessions and sessions[0].ours != share:
            state.told = ()
            self._tell(peer, state, now)
        else:
            self._start_hello(peer, state, state.handshake.start(now), now)

    def settle(self, peer: LinkPeer, share: bytes, now: float) -> None:
        """Mark the session of this NIC's share as known to the peer, which another queue has seen."""
        state = self._state_of(peer)
        for session in state.handshake.sessions:
            if session.ours == share:
                state.handshake.settle(session, now)
        self._start_hello(peer, state, None, now)

    # --- egress

    def encrypt(self, peer: LinkPeer, frames: Frames, now: float) -> Iterator[Frames]:
        """Yield the datagrams to send, in batches, each valid until the next call of any method. None if the frames
        wait."""
        state = self._state_of(peer)
        if not self._ring.can_reach(peer.mac):
            self.counted.dropped_no_key += len(frames)
            why = "its key is revoked" if state.revoked else "this NIC has no key of it"
            self._log.report(("no key", peer), f"no frames are sent to {peer}: {why}", now, len(frames))
            return
        while len(frames):
            session = state.handshake.sending(now)
            if session is None:
                self._queue_frames(state, frames)
                self._start_hello(peer, state, state.handshake.start(now), now)
                return
            if session.needs_rekey(now):
                self._start_hello(peer, state, state.handshake.start(now), now)
            count = self._encrypt(session, frames)
            if count:
                state.handshake.c.sent_at = now
                yield Frames(self._out.data, self._out.offsets[:count], self._out.lengths[:count], frames.packet_id)
                if count == len(frames):
                    return
                frames = frames.select(slice(count, None))
            else:
                state.handshake.forget(session)

    def _encrypt(self, session: SecureSession, frames: Frames) -> int:
        """Encrypt as many frames as fit; 0 if the session's counter is exhausted."""
        most = min(len(frames), _OUT_FRAMES)
        into = (self.c.out, _OUT_BYTES, self.c.offsets, self.c.lengths)
        count: int = lib.sn_encrypt(self._cipher, session.encryptor, *frames.arrays, most, *into)
        return count

    def _queue_frames(self, state: _State, frames: Frames) -> None:
        if state.waiting_bytes + frames.nbytes > WAITING_BYTES:
            self.counted.dropped_waiting += len(frames)
            return
        state.waiting.append(frames)
        state.waiting_bytes += frames.nbytes

    def _drop_waiting(self, state: _State) -> None:
        self.counted.dropped_waiting += sum(map(len, state.waiting))
        state.waiting.clear()
        state.waiting_bytes = 0

    def _start_hello(
        self, peer: LinkPeer, state: _State, hello: SecureHello | None, now: float, to: Address | None = None
    ) -> None:
        self._tell(peer, state, now)  # before the peer knows
        if hello is not None and isinstance(state.handshake, Handshake) and (packed := state.handshake.pack(hello)):
            self._send_hello(peer, packed, to)
        if state.handshake.due is None:
            self._active_handshakes.discard(peer)
        else:
            self._active_handshakes.add(peer)

    def _release(self, peer: LinkPeer, state: _State, now: float) -> None:
        if not state.waiting or state.handshake.sending(now) is None:
            return
        self._released += [(peer, frames) for frames in state.waiting]
        state.waiting.clear()
        state.waiting_bytes = 0

    def take_released(self) -> list[tuple[LinkPeer, Frames]]:
        """Return and forget the frames that waited for a session which now exists."""
        released, self._released = self._released, []
        return released

    def advance(self, now: float) -> None:
        for peer in list(self._active_handshakes):
            state = self._states[peer]
            due = state.handshake.due
            if due is not None and now < due:
                continue
            self._start_hello(peer, state, state.handshake.advance(now), now)
            if state.handshake.due is None:  # the handshake has given up
                self._drop_waiting(state)

    def next_time(self) -> float | None:
        dues = [self._states[peer].handshake.due for peer in self._active_handshakes]
        return min((due for due in dues if due is not None), default=None)

    # --- ingress

    def open(self, now: float) -> Iterator[None]:
        """Open the batch that was received, in place. Yields where it pauses, to be continued after `examine`."""
        lib.sn_secure_begin(self.c)
        while lib.sn_secure_open(self.c, now):
            yield

    def examine(self, now: float) -> None:
        """Look at the opening of a batch, which has paused: count what was dropped, and answer a hello."""
        opening = self.c.opening
        place = self._batch.sources[opening.source].peer
        peer, source = self._peers[place], self._addresses[place]
        state = self._state_of(peer)
        for session in state.handshake.sessions:
            if session.c == opening.shown:
                state.handshake.settle(session, now)
                self._start_hello(peer, state, None, now)
        self._count_dropped(peer, state, now)
        if opening.at_hello:
            assert isinstance(state.handshake, Handshake)  # hellos are the first queue's
            pair = state.handshake.pairs[opening.found.key]
            length = lib.SN_IDENTITY_HELLO_LENGTH if pair.name else lib.SN_HELLO_LENGTH
            datagram = bytes(ffi.buffer(self._batch.data + opening.hello, length))
            self._on_hello(peer, state, pair, datagram, source, now)

    def _count_dropped(self, peer: LinkPeer, state: _State, now: float) -> None:
        found, counted = self.c.opening.found, self.counted
        counted.dropped_malformed += found.malformed
        counted.dropped_forged += found.forged
        counted.dropped_replayed += found.replayed
        if state.revoked:
            lost = found.wrong_key + found.unknown
            counted.dropped_revoked += lost
            if lost:
                text = f"the key of {peer} is revoked: its datagrams are dropped"
                self._log.report(("revoked", peer), text, now, lost)
        elif found.wrong_key:
            counted.dropped_wrong_key += found.wrong_key
            text = f"{peer} has another key than this NIC, or is another node: its datagrams are dropped"
            self._log.report(("key", peer), text, now, found.wrong_key)
        if found.plaintext:
            counted.dropped_plaintext += found.plaintext
            text = f"{peer} has no key: its unencrypted datagrams are dropped"
            self._log.report(("plaintext", peer), text, now, found.plaintext)
        if found.unknown:
            counted.dropped_no_session += 0 if state.revoked else found.unknown
            if not any(session.settled for session in state.handshake.opening(now)):
                self._start_hello(peer, state, state.handshake.start(now), now)

    def _on_hello(
        self, peer: LinkPeer, state: _State, pair: AnyKeys, datagram: bytes, source: Address, now: float
    ) -> None:
        """Process a hello under the right key, fresh or replayed. A fresh one is recognised by two comparisons. Another
        one is answered within the peer's budget, which replays may exhaust, and ignored unless it asks for an
        answer: it may answer a replay of this node's own hello."""
        hello, handshake = pair.peek(datagram), state.handshake
        assert isinstance(handshake, Handshake)
        fresh = handshake.is_fresh(hello)
        if not fresh and not hello.asks:
            return
        if not fresh and not state.hellos.take(now):
            self.counted.dropped_hello += 1
            if now >= state.own_hello_at:
                state.own_hello_at = now + OWN_HELLO_S
                self._start_hello(peer, state, handshake.start(now), now)
            return
        before = handshake.sessions[:1]
        try:
            answer = handshake.on_hello(pair.parse(datagram), now)
        except HelloError:
            self.counted.dropped_hello += 1
            return
        if handshake.sessions[:1] != before:
            self.counted.sessions += 1
            state.revoked = False
        if fresh:
            self._on_fresh(peer, source, now)
        self._start_hello(peer, state, answer, now, source)
        self._release(peer, state, now)

    # --- peers at other addresses

    def place_of(self, address: Address) -> int | None:
        """Return the place of an address among those that C knows; None: it is nobody's."""
        return self._places.get(address)

    def foreign_hello(self) -> tuple[bytes, Address] | None:
        """Return the last hello of nodes' keys among what was dropped, and its source: another peer's may be there."""
        opening = self.c.opening
        if not opening.found.has_foreign:
            return None
        data = ffi.buffer(self._batch.data + opening.found.foreign, lib.SN_IDENTITY_HELLO_LENGTH)
        return bytes(data), self._addresses[self._batch.sources[opening.source].peer]

    def hear_hello(self, peer: LinkPeer, datagram: bytes, source: Address, now: float) -> bool:
        """Process a hello from an address that is not this peer's. Returns whether it is the peer's; `on_fresh` has
        it if it is no replay. An answer goes to its source and is as long as the hello."""
        state = self._state_of(peer)
        if not isinstance(state.handshake, Handshake):
            return False
        for pair in state.handshake.pairs:
            if pair.kind == datagram[0] and pair.authenticates(datagram):
                self._on_hello(peer, state, pair, datagram, source, now)
                return True
        return False

    def owner(self, datagram: bytes) -> LinkPeer | None:
        """Return the peer of the session that a sealed frame names; None if there is no such session."""
        sessions = self._by_session.get(datagram[:_SESSION_HEADER])
        return None if sessions is None else self._owners[sessions]

    def claim(self, datagram: bytes, now: float, *, notes: bool) -> bool:
        """Return whether its session's peer has sealed a datagram, later than all others that were opened.

        Without `notes` it is not opened by this: the same datagram is expected again at once.
        """
        sessions = self._by_session.get(datagram[:_SESSION_HEADER])
        queues = self._encryption.place
        if (
            sessions is None
            or lib.sn_sealed_queue(datagram, len(datagram), queues.queues, queues.number) != queues.number
        ):
            return False
        session = sessions.claim(self._cipher, datagram, now, notes=notes)
        if session is None:
            return False
        peer = self._owners[sessions]
        state = self._states[peer]
        state.handshake.settle(session, now)
        self._start_hello(peer, state, None, now)
        self._release(peer, state, now)
        return True

    def start_hello(self, peer: LinkPeer, now: float) -> None:
        """Ask a peer for a new session, unless one is asked for."""
        state = self._state_of(peer)
        self._start_hello(peer, state, state.handshake.start(now), now)

    def probe(self, peer: LinkPeer, addresses: Sequence[Address], now: float) -> None:
        """Ask a peer at these addresses for an answer, once."""
        state = self._state_of(peer)
        if isinstance(state.handshake, Handshake):
            for address in addresses:
                self._start_hello(peer, state, state.handshake.probe(), now, address)

    def sent_at(self, peer: LinkPeer) -> float:
        """Return when something was last sent to a peer; 0: not yet."""
        return float(self._state_of(peer).handshake.c.sent_at)

    def heard_at(self, address: Address) -> float:
        """Return when something authentic was last heard from a peer's address; 0: not yet."""
        place = self._places.get(address)
        return 0.0 if place is None else float(self._heard[place])

    def keep_alive(self, peer: LinkPeer, now: float) -> Frames | None:
        """Return a sealed datagram without a frame; None if there is no session, and one is asked for."""
        state = self._state_of(peer)
        session = state.handshake.sending(now)
        if session is None or session.needs_rekey(now):
            self._start_hello(peer, state, state.handshake.start(now), now)
        if session is None or not self._encrypt(session, Frames.of([b""])):
            return None
        state.handshake.c.sent_at = now
        return Frames(self._out.data, self._out.offsets[:1], self._out.lengths[:1])
