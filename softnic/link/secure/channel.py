"""Encryption for a link: frames to datagrams that only their peer can open, and datagrams to frames that only a peer
can have made. What concerns one peer's session is decided in handshake.py; what is done to every byte, in
native/aead.c.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.link.forwarding import LinkPeer
from softnic.link.rate_limited_log import RateLimitedLog
from softnic.link.secure import libcrypto
from softnic.link.secure.handshake import Handshake, RandomBytes, SecureSession
from softnic.link.secure.hello import HelloError, SecureHello, parse, peek
from softnic.link.secure.keys import PairKeys
from softnic.packet.frames import Frames

OVERHEAD: int = lib.SN_SECURE_OVERHEAD
"""Bytes that a sealed frame has more than the frame."""
WAITING_BYTES = 1 << 17
"""Of frames to one peer that may wait for a session."""
HELLOS_PER_S = 32
"""Of one peer that may have been recorded earlier and are looked at; as many at once. Fresh ones are always."""
OWN_HELLO_S = 2.0
"""If there are more, this node says hello itself, so often at most: the answer to that is fresh."""
_OUT_BYTES, _OUT_FRAMES = 1 << 19, 1 << 12
"""Sealed together; what is more goes in several batches."""


@dataclass(slots=True)
class SecureCounters:
    """Each datagram that is not let through is in one of them, or in the wire's own."""

    sessions: int = 0
    """Agreed on."""
    dropped_wrong_key: int = 0
    """Hellos from a peer's address that were made under another key."""
    dropped_plaintext: int = 0
    """VXLAN from a peer's address."""
    dropped_forged: int = 0
    """Altered on their way, or not sealed by the peer at all."""
    dropped_replayed: int = 0
    """Opened before, or behind too many that came later."""
    dropped_no_session: int = 0
    """Of a session that this NIC does not have: the peer's from before a restart, say."""
    dropped_hello: int = 0
    """Hellos beyond HELLOS_PER_S, or of no meaning."""
    dropped_malformed: int = 0
    """Neither hellos nor frames, by their first byte or length."""
    dropped_waiting: int = 0
    """Frames on their way out for which there was no session in time."""


@dataclass(slots=True, eq=False)
class _State:
    """Of one peer."""

    keys: PairKeys
    handshake: Handshake
    waiting: list[Frames] = field(default_factory=list)
    waiting_bytes: int = 0
    hellos: float = HELLOS_PER_S
    """That may be looked at now."""
    hellos_at: float = 0.0
    own_hello_at: float = float("-inf")
    """When this node may say hello itself because of them."""


class SecureChannel:
    """Of the node with this MAC. Raises CryptoError where there is no libcrypto."""

    def __init__(
        self,
        key: bytes,
        own: bytes,
        vni: int,
        *,
        send_hello: Callable[[LinkPeer, bytes], None],
        log: RateLimitedLog,
        random_bytes: RandomBytes,
    ) -> None:
        self._key, self._own, self._vni = key, own, vni
        self._send_hello = send_hello
        self._log = log
        self._random_bytes = random_bytes
        self._cipher = libcrypto.cipher()
        self._states: dict[LinkPeer, _State] = {}
        self._trying: set[LinkPeer] = set()
        """A hello to them is due some time."""
        self._found = ffi.new("sn_decrypted *")
        self._out = Frames(
            np.empty(_OUT_BYTES, np.uint8), np.empty(_OUT_FRAMES, np.uint32), np.empty(_OUT_FRAMES, np.uint32)
        )
        """Where the latest datagrams are."""
        self._into = (
            ffi.from_buffer("uint8_t[]", self._out.data),
            _OUT_BYTES,
            ffi.from_buffer("uint32_t[]", self._out.offsets),
            ffi.from_buffer("uint32_t[]", self._out.lengths),
        )
        self.counted = SecureCounters()
        self.released: list[tuple[LinkPeer, Frames]] = []
        """Frames that waited for a session that there is now: their owner sends them, and clears this."""

    def check(self, peer: LinkPeer, mac: bytes) -> None:
        """Raises OSError for a second node at one address: sessions are with nodes, and told apart by address."""
        if peer.mac != mac:
            raise OSError(errno.EADDRINUSE, f"{peer} is another node's: with a key, each has an address of its own")

    def _of(self, peer: LinkPeer) -> _State:
        state = self._states.get(peer)
        if state is None:
            keys = PairKeys(self._key, self._vni, self._own, peer.mac)
            state = self._states[peer] = _State(keys, Handshake(keys, self._vni, self._random_bytes))
        return state

    def forget(self, peer: LinkPeer) -> None:
        """The peer is no longer at its address: its sessions end, and what waits for one is dropped."""
        state = self._states.pop(peer, None)
        if state is not None:
            self._drop_waiting(state)
        self._trying.discard(peer)

    # --- out

    def encrypt(self, peer: LinkPeer, frames: Frames, now: float) -> Iterator[Frames]:
        """The datagrams to send, in batches. Each is to be done with, or copied, before the next one is asked for, or
        anything else. None, if the frames wait for a session."""
        state = self._of(peer)
        while len(frames):
            session = state.handshake.sending(now)
            if session is None:
                self._queue_frames(state, frames)
                self._send_hello_to(peer, state, state.handshake.start(now))
                return
            if session.needs_rekey(now):
                self._send_hello_to(peer, state, state.handshake.start(now))
            count = self._encrypt(session, frames)
            if count:
                yield Frames(self._out.data, self._out.offsets[:count], self._out.lengths[:count], frames.packet_id)
                if count == len(frames):
                    return
                frames = frames.select(slice(count, None))
            else:
                state.handshake.forget(session)

    def _encrypt(self, session: SecureSession, frames: Frames) -> int:
        """As many as there is tx_space for; none if the session has come to its end."""
        count: int = lib.sn_encrypt(
            self._cipher,
            session.encryptor,
            ffi.from_buffer("uint8_t[]", frames.data),
            ffi.from_buffer("uint32_t[]", frames.offsets),
            ffi.from_buffer("uint32_t[]", frames.lengths),
            min(len(frames), _OUT_FRAMES),
            *self._into,
        )
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

    def _send_hello_to(self, peer: LinkPeer, state: _State, hello: SecureHello | None) -> None:
        if hello is not None:
            self._send_hello(peer, hello.pack(self._vni, state.keys.hello_out))
        if state.handshake.due is None:
            self._trying.discard(peer)
        else:
            self._trying.add(peer)

    def _release(self, peer: LinkPeer, state: _State) -> None:
        self.released += [(peer, frames) for frames in state.waiting]
        state.waiting.clear()
        state.waiting_bytes = 0

    def advance(self, now: float) -> None:
        for peer in list(self._trying):
            state = self._states[peer]
            due = state.handshake.due
            if due is not None and now < due:
                continue
            self._send_hello_to(peer, state, state.handshake.advance(now))
            if state.handshake.due is None:  # given up
                self._drop_waiting(state)

    def next_time(self) -> float | None:
        dues = [self._states[peer].handshake.due for peer in self._trying]
        return min((due for due in dues if due is not None), default=None)

    # --- in

    def decrypt(self, peer: LinkPeer, listed: tuple[Any, Any, Any], first: int, count: int, at: int, now: float) -> int:
        """Opens a peer's datagrams where they lie: `count` of those listed, from `first` on. Lists the frames from `at`
        on, which is not behind `first`; returns how many. Counts what it drops, and answers hellos."""
        state, found = self._of(peer), self._found
        data, offsets, lengths = listed
        end, frames = first + count, 0
        while first < end:
            sessions = state.handshake.opening(now)
            decryptors = [session.decryptor for session in sessions]
            where = data, offsets + first, lengths + first, end - first
            into = offsets + at + frames, lengths + at + frames
            done: int = lib.sn_decrypt(
                self._cipher, state.keys.hello_in, decryptors, len(decryptors), *where, *into, found
            )
            frames += found.frames
            first += done
            for index, session in enumerate(sessions):
                if not session.settled and found.by[index]:
                    state.handshake.settle(session)
                    self._send_hello_to(peer, state, None)
            if found.frames < done:
                self._count_dropped(peer, state, now)
            if first < end:
                self._on_hello(peer, state, bytes(ffi.buffer(data + offsets[first], lengths[first])), now)
                first += 1
        return frames

    def _count_dropped(self, peer: LinkPeer, state: _State, now: float) -> None:
        found, counted = self._found, self.counted
        counted.dropped_malformed += found.malformed
        counted.dropped_forged += found.forged
        counted.dropped_replayed += found.replayed
        if found.wrong_key:
            counted.dropped_wrong_key += found.wrong_key
            text = f"{peer} has another key than this NIC, or is another node: what it sends is dropped"
            self._log.report(("key", peer), text, now, found.wrong_key)
        if found.plaintext:
            counted.dropped_plaintext += found.plaintext
            text = f"{peer} has no key: what it sends is not sealed, and dropped"
            self._log.report(("plaintext", peer), text, now, found.plaintext)
        if found.unknown:
            counted.dropped_no_session += found.unknown
            if not any(session.settled for session in state.handshake.sessions):
                self._send_hello_to(peer, state, state.handshake.start(now))

    @staticmethod
    def _has_budget(state: _State, now: float) -> bool:
        state.hellos = min(HELLOS_PER_S, state.hellos + (now - state.hellos_at) * HELLOS_PER_S)
        state.hellos_at = now
        if state.hellos < 1:
            return False
        state.hellos -= 1
        return True

    def _on_hello(self, peer: LinkPeer, state: _State, datagram: bytes, now: float) -> None:
        """A hello that the peer has made, now or some time ago. Whether it is fresh costs two comparisons; one that is
        not must fit the peer's budget, which replays may have exhausted; without a question it has no effect,
        as an answer to what somebody replayed in this node's name."""
        said = peek(datagram)
        fresh = state.handshake.is_fresh(said)
        if not fresh and not said.asks:
            return
        if not fresh and not self._has_budget(state, now):
            self.counted.dropped_hello += 1
            if now >= state.own_hello_at:
                state.own_hello_at = now + OWN_HELLO_S
                self._send_hello_to(peer, state, state.handshake.start(now))
            return
        before = state.handshake.sessions[:1]
        try:
            hello = parse(datagram, self._vni, state.keys.hello_in)
            answer = state.handshake.on_hello(hello, now)
        except HelloError:
            self.counted.dropped_hello += 1
            return
        self.counted.sessions += state.handshake.sessions[:1] != before
        self._send_hello_to(peer, state, answer)
        if state.waiting and state.handshake.sending(now) is not None:
            self._release(peer, state)
