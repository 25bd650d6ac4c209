"""Sealing for a wire: frames to datagrams that only their peer can open, datagrams to frames that only a peer can have
made. What concerns one peer's session is decided in handshake.py; what is done to every byte, in native/seal.c.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.link.notices import Notices
from softnic.link.places import Peer
from softnic.link.sealed import libcrypto
from softnic.link.sealed.handshake import Handshake, RandomBytes, Session
from softnic.link.sealed.hello import Hello, HelloError, parse
from softnic.link.sealed.keys import PairKeys
from softnic.stack.frames import Frames

OVERHEAD: int = lib.SN_SEAL_OVERHEAD
"""Bytes that a sealed frame has more than the frame."""
WAITING_BYTES = 1 << 17
"""Of frames to one peer that may wait for a session."""
HELLOS_PER_S = 32
"""Of one peer that are looked at; as many at once."""


@dataclass(slots=True)
class SealCounters:
    """Each datagram that is not let through is in one of them, or in the wire's own."""

    sessions: int = 0
    """Agreed on."""
    dropped_wrong_key: int = 0
    """Hellos from a peer's address that were made under another key."""
    dropped_unsealed: int = 0
    """VXLAN from a peer's address."""
    dropped_forged: int = 0
    """Altered on their way, or not sealed by the peer at all."""
    dropped_replayed: int = 0
    """Opened before, or behind too many that came later."""
    dropped_no_session: int = 0
    """Of a session that this NIC does not have: the peer's from before a restart, say."""
    dropped_hello: int = 0
    """Hellos beyond HELLOS_PER_S, or of no meaning."""
    dropped_unknown: int = 0
    """Neither hellos nor frames."""
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


class Seals:
    """Of the node with this MAC. Raises CryptoError where there is no libcrypto."""

    def __init__(
        self,
        key: bytes,
        own: bytes,
        vni: int,
        *,
        say_hello: Callable[[Peer, bytes], None],
        notices: Notices,
        random_bytes: RandomBytes,
    ) -> None:
        self._key, self._own, self._vni = key, own, vni
        self._say_hello = say_hello
        self._notices = notices
        self._random_bytes = random_bytes
        self._cipher = libcrypto.cipher()
        self._states: dict[Peer, _State] = {}
        self._trying: set[Peer] = set()
        """A hello to them is due some time."""
        self._found = ffi.new("sn_opened *")
        most = lib.SN_MOST_HELLOS
        self._hello_offsets, self._hello_lengths = ffi.new("uint32_t[]", most), ffi.new("uint32_t[]", most)
        self._made_up = ffi.new("uint32_t *")
        self.counted = SealCounters()
        self.released: list[tuple[Peer, Frames]] = []
        """Frames that waited for a session that there is now: their owner sends them, and clears this."""

    def check(self, peer: Peer, station: bytes) -> None:
        """Raises OSError for a second node at one address: sessions are with nodes, and told apart by address."""
        if peer.station != station:
            raise OSError(errno.EADDRINUSE, f"{peer} is another node's: with a key, each has an address of its own")

    def _of(self, peer: Peer) -> _State:
        state = self._states.get(peer)
        if state is None:
            keys = PairKeys(self._key, self._vni, self._own, peer.station)
            state = self._states[peer] = _State(keys, Handshake(keys, self._vni, self._random_bytes))
        return state

    def forget(self, peer: Peer) -> None:
        self._states.pop(peer, None)
        self._trying.discard(peer)

    # --- out

    def seal(self, peer: Peer, frames: Frames, now: float) -> Frames | None:
        """The datagrams to send; None if the frames wait for a session, or cannot have one."""
        state = self._of(peer)
        session = state.handshake.sending(now)
        if session is None:
            self._hold(state, frames)
            self._say(peer, state, state.handshake.start(now))
            return None
        if session.worn(now):
            self._say(peer, state, state.handshake.start(now))
        return self._sealed(session, frames)

    def _sealed(self, session: Session, frames: Frames) -> Frames | None:
        count = len(frames)
        total = frames.nbytes + OVERHEAD * count
        out = np.empty(total, np.uint8)
        offsets, lengths = np.empty(count, np.uint32), np.empty(count, np.uint32)
        done: int = lib.sn_seal(
            self._cipher,
            session.sealer,
            ffi.from_buffer("uint8_t[]", frames.data),
            ffi.from_buffer("uint32_t[]", frames.offsets),
            ffi.from_buffer("uint32_t[]", frames.lengths),
            count,
            ffi.from_buffer("uint8_t[]", out),
            total,
            ffi.from_buffer("uint32_t[]", offsets),
            ffi.from_buffer("uint32_t[]", lengths),
        )
        if done < count:  # the session has come to its end: what is lost is sent again under the next one
            self.counted.dropped_waiting += count - done
            return Frames(out, offsets[:done], lengths[:done], frames.packet_id) if done else None
        return Frames(out, offsets, lengths, frames.packet_id, total)

    def _hold(self, state: _State, frames: Frames) -> None:
        if state.waiting_bytes + frames.nbytes > WAITING_BYTES:
            self.counted.dropped_waiting += len(frames)
            return
        state.waiting.append(frames)
        state.waiting_bytes += frames.nbytes

    def _say(self, peer: Peer, state: _State, hello: Hello | None) -> None:
        if hello is not None:
            self._say_hello(peer, hello.pack(self._vni, state.keys.hello_out))
        if state.handshake.due is None:
            self._trying.discard(peer)
        else:
            self._trying.add(peer)

    def _release(self, peer: Peer, state: _State) -> None:
        self.released += [(peer, frames) for frames in state.waiting]
        state.waiting.clear()
        state.waiting_bytes = 0

    def advance(self, now: float) -> None:
        for peer in list(self._trying):
            state = self._states[peer]
            due = state.handshake.due
            if due is not None and now < due:
                continue
            self._say(peer, state, state.handshake.advance(now))
            if state.handshake.due is None:  # given up
                self.counted.dropped_waiting += sum(map(len, state.waiting))
                state.waiting.clear()
                state.waiting_bytes = 0

    def next_time(self) -> float | None:
        dues = [self._states[peer].handshake.due for peer in self._trying]
        return min((due for due in dues if due is not None), default=None)

    # --- in

    def open(self, peer: Peer, listed: tuple[Any, Any, Any], first: int, count: int, at: int, now: float) -> int:
        """Opens a peer's datagrams where they lie: `count` of those listed, from `first` on. Lists the frames from `at`
        on, which is not behind `first`; returns how many. Counts what it drops, and answers hellos."""
        state = self._of(peer)
        data, offsets, lengths = listed
        offsets, lengths, into = offsets + first, lengths + first, (offsets + at, lengths + at)
        # Before the frames: those behind a hello may be of the session that it makes.
        heard: int = lib.sn_find_hellos(
            self._cipher,
            state.keys.hello_in,
            data,
            offsets,
            lengths,
            count,
            self._hello_offsets,
            self._hello_lengths,
            self._made_up,
        )
        for index in range(heard):
            where, length = self._hello_offsets[index], self._hello_lengths[index]
            self._hear(peer, state, bytes(ffi.buffer(data + where, length)), now)
        sessions = state.handshake.opening(now)
        openers = [session.opener for session in sessions]
        found = self._found
        lib.sn_open(self._cipher, openers, len(openers), data, offsets, lengths, count, *into, found)
        for index, session in enumerate(sessions):
            if not session.settled and found.by[index]:
                state.handshake.settle(session)
                self._say(peer, state, None)
        frames: int = found.frames
        if frames < count:
            self._count_dropped(peer, state, found.hellos - heard, now)
        return frames

    def _count_dropped(self, peer: Peer, state: _State, hellos: int, now: float) -> None:
        """What `sn_open` did not open, so many hellos that were not looked at among it."""
        found, counted, made_up = self._found, self.counted, self._made_up[0]
        counted.dropped_hello += hellos - made_up
        if made_up:
            counted.dropped_wrong_key += made_up
            text = f"{peer} has another key than this NIC, or is another node: what it sends is dropped"
            self._notices.tell(("key", peer), text, now, made_up)
        counted.dropped_unknown += found.malformed
        counted.dropped_forged += found.forged
        counted.dropped_replayed += found.replayed
        if found.plain:
            counted.dropped_unsealed += found.plain
            text = f"{peer} has no key: what it sends is not sealed, and dropped"
            self._notices.tell(("plain", peer), text, now, found.plain)
        if found.unknown:
            counted.dropped_no_session += found.unknown
            if not any(session.settled for session in state.handshake.sessions):
                self._say(peer, state, state.handshake.start(now))

    def _hear(self, peer: Peer, state: _State, datagram: bytes, now: float) -> None:
        """A hello that the peer has made, now or some time ago."""
        state.hellos = min(HELLOS_PER_S, state.hellos + (now - state.hellos_at) * HELLOS_PER_S)
        state.hellos_at = now
        if state.hellos < 1:
            self.counted.dropped_hello += 1
            return
        state.hellos -= 1
        before = state.handshake.sessions[:1]
        try:
            hello = parse(datagram, self._vni, state.keys.hello_in)
            answer = state.handshake.hear(hello, now)
        except (HelloError, libcrypto.CryptoError):
            self.counted.dropped_hello += 1
            return
        self.counted.sessions += state.handshake.sessions[:1] != before
        self._say(peer, state, answer)
        if state.waiting and state.handshake.sending(now) is not None:
            self._release(peer, state)
