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
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.link.forwarding import LinkPeer
from softnic.link.rate_limited_log import RateLimitedLog
from softnic.link.received_batch import ReceivedBatch
from softnic.link.secure import libcrypto
from softnic.link.secure.followed import FollowedHandshake, Leader, Tell
from softnic.link.secure.handshake import Handshake, RandomBytes
from softnic.link.secure.hello import HelloError, SecureHello, parse, peek
from softnic.link.secure.keys import PairKeys
from softnic.link.secure.session import ONLY_QUEUE, QueuePlace, SecureSession, SessionTerms
from softnic.packet.frames import Frames

OVERHEAD: int = lib.SN_SECURE_OVERHEAD
"""Bytes that encryption adds to a frame."""
WAITING_BYTES = 1 << 17
"""Limit of frames to one peer that wait for a session."""
HELLOS_PER_S = 32
"""Rate and burst of one peer's hellos that are answered though they may be replayed. Fresh ones always are."""
OWN_HELLO_S = 2.0
"""Minimum interval of own hellos when there are more: the answer to an own hello is fresh."""
_OUT_BYTES, _OUT_FRAMES = 1 << 19, 1 << 12
"""Limits of one encrypted batch."""

Agreed = tuple[tuple[SessionTerms, bool], ...]
"""The sessions with a peer, the newest first, each with whether the peer is known to have it."""
Adopt = Callable[[bytes, Agreed, float], None]
"""Has another queue use the sessions with the node that has this MAC."""


@dataclass(frozen=True, slots=True, repr=False)
class EncryptionSettings:
    """Key and identity of a node that encrypts its wire."""

    key: bytes
    own: bytes
    """The MAC of the node."""
    random_bytes: RandomBytes = os.urandom
    """Source of private keys."""
    place: QueuePlace = ONLY_QUEUE
    """The queue whose wire it is."""


@dataclass(slots=True)
class SecureCounters:
    """Each datagram that is not delivered is in exactly one of these, or of the link's own counters."""

    sessions: int = 0
    """Sessions agreed on."""
    dropped_wrong_key: int = 0
    """Hellos from a peer's address under another key."""
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


@dataclass(slots=True, eq=False)
class _State:
    """What is known about one peer."""

    keys: PairKeys
    handshake: Handshake | FollowedHandshake
    told: Agreed = ()
    """What the other queues were told of its sessions."""
    waiting: list[Frames] = field(default_factory=list)
    waiting_bytes: int = 0
    hellos: float = HELLOS_PER_S
    """Budget of possibly replayed hellos."""
    hellos_at: float = 0.0
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
        Sends a hello datagram to a peer, once.
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
        send_hello: Callable[[LinkPeer, bytes], None],
        log: RateLimitedLog,
    ) -> None:
        self._encryption, self._vni = encryption, vni
        self._send_hello = send_hello
        self._log = log
        self._cipher = libcrypto.cipher()
        self._states: dict[LinkPeer, _State] = {}
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
            keys = PairKeys(self._encryption.key, self._vni, self._encryption.own, peer.mac)
            state = self._states[peer] = _State(keys, self._handshake(keys, peer))
        return state

    def _handshake(self, keys: PairKeys, peer: LinkPeer) -> Handshake | FollowedHandshake:
        place = self._encryption.place
        if place.number == 0:
            return Handshake(keys, self._vni, self._encryption.random_bytes, place.queues)
        return FollowedHandshake(keys.hello_in, self._vni, peer.mac, place, self._leader)

    def use(self, peers: Sequence[LinkPeer], keys: Any) -> None:
        """Have C find these peers by these keys (ForwardingTable.sorted_peers)."""
        if self._listed is not None and self._listed[0] is keys:
            return
        states = [self._state_of(peer) for peer in peers]
        listed = ffi.new("sn_secure_peer *[]", [state.handshake.c for state in states])
        self.c.keys, self.c.peers, self.c.peer_count = keys, listed, len(peers)
        self._peers, self._listed = peers, (keys, listed, states)

    def forget(self, peer: LinkPeer) -> None:
        """End a peer's sessions and drop the frames that wait for one: the peer has left its address."""
        state = self._states.pop(peer, None)
        if state is not None:
            state.handshake.end()
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
        state.handshake.adopt(agreed, now)
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

    def _start_hello(self, peer: LinkPeer, state: _State, hello: SecureHello | None, now: float) -> None:
        self._tell(peer, state, now)  # before the peer knows
        if hello is not None:
            self._send_hello(peer, hello.pack(self._vni, state.keys.hello_out))
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
        peer = self._peers[self._batch.sources[opening.source].peer]
        state = self._state_of(peer)
        for session in state.handshake.sessions:
            if session.c == opening.shown:
                state.handshake.settle(session, now)
                self._start_hello(peer, state, None, now)
        self._count_dropped(peer, state, now)
        if opening.at_hello:
            hello = self._batch.data + opening.hello
            self._on_hello(peer, state, bytes(ffi.buffer(hello, lib.SN_HELLO_LENGTH)), now)

    def _count_dropped(self, peer: LinkPeer, state: _State, now: float) -> None:
        found, counted = self.c.opening.found, self.counted
        counted.dropped_malformed += found.malformed
        counted.dropped_forged += found.forged
        counted.dropped_replayed += found.replayed
        if found.wrong_key:
            counted.dropped_wrong_key += found.wrong_key
            text = f"{peer} has another key than this NIC, or is another node: its datagrams are dropped"
            self._log.report(("key", peer), text, now, found.wrong_key)
        if found.plaintext:
            counted.dropped_plaintext += found.plaintext
            text = f"{peer} has no key: its unencrypted datagrams are dropped"
            self._log.report(("plaintext", peer), text, now, found.plaintext)
        if found.unknown:
            counted.dropped_no_session += found.unknown
            if not any(session.settled for session in state.handshake.opening(now)):
                self._start_hello(peer, state, state.handshake.start(now), now)

    @staticmethod
    def _has_budget(state: _State, now: float) -> bool:
        state.hellos = min(HELLOS_PER_S, state.hellos + (now - state.hellos_at) * HELLOS_PER_S)
        state.hellos_at = now
        if state.hellos < 1:
            return False
        state.hellos -= 1
        return True

    def _on_hello(self, peer: LinkPeer, state: _State, datagram: bytes, now: float) -> None:
        """Process a hello under the right key, fresh or replayed. A fresh one is recognised by two comparisons. Another
        one is answered within the peer's budget, which replays may exhaust, and ignored unless it asks for an
        answer: it may answer a replay of this node's own hello."""
        hello, handshake = peek(datagram), state.handshake
        assert isinstance(handshake, Handshake)  # hellos are the first queue's
        fresh = handshake.is_fresh(hello)
        if not fresh and not hello.asks:
            return
        if not fresh and not self._has_budget(state, now):
            self.counted.dropped_hello += 1
            if now >= state.own_hello_at:
                state.own_hello_at = now + OWN_HELLO_S
                self._start_hello(peer, state, handshake.start(now), now)
            return
        before = handshake.sessions[:1]
        try:
            hello = parse(datagram, self._vni, state.keys.hello_in)
            answer = handshake.on_hello(hello, now)
        except HelloError:
            self.counted.dropped_hello += 1
            return
        self.counted.sessions += handshake.sessions[:1] != before
        self._start_hello(peer, state, answer, now)
        self._release(peer, state, now)
