"""VXLAN over UDP (RFC 7348): the wire between daemons, or between a daemon and a kernel's VXLAN device.

Only configured peers are heard, told by the address and port that they send from. (A kernel's VXLAN device sends
from many ports unless told `srcport P P+1`.) Stations are found as a learning switch does: a configured station
stays where it is configured, any other is where it was last heard, and what has no known place, or a group
address, goes to all peers.

Batches go to the kernel as they are, headers written into the headroom: GSO takes up to 64 equal frames a
datagram and loopback hands them to the receiver's GRO in one piece. A way out that cannot do GSO gets single
datagrams. When the socket is full, frames wait, `room` says 0 and `advance` tries again.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from softnic._native import ffi, lib
from softnic.stack.frames import Frames

MAX_VNI = (1 << 24) - 1
SOCKET_BUFFER_BYTES = 16 * 2**20
"""What the socket asks for; the system may grant less."""
SEND_LIMIT_BYTES = 4 * 2**20
"""What may wait for a full socket."""
RETRY_S = 100e-6
MAX_LEARNED = 4096
"""Stations remembered beside the configured ones; the oldest goes first."""
MAX_FOREIGN_BATCHES = 8
"""Batches without one acceptable frame that one `receive` reads before it lets its caller do something else."""

_SLOT_BYTES = 1 << 16
_MESSAGES = 32
_FRAMES = _MESSAGES * 128

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO = struct.Struct("9I")

_FULL = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS}
_NO_GSO = {errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.EOPNOTSUPP}

Address = tuple[str, int]


@dataclass(slots=True)
class VxlanCounters:
    """Frames, and Ethernet bytes where it says so. Each frame that does not get through is in one of them."""

    sent_frames: int = 0
    """Handed to the kernel, once for every peer that one goes to."""
    sent_bytes: int = 0
    received_frames: int = 0
    received_bytes: int = 0
    dropped_no_peer: int = 0
    """Sent while no peer was configured."""
    dropped_full: int = 0
    """The socket was full, and so was the queue before it."""
    dropped_send_error: int = 0
    """The kernel refused them: no route, a peer's host down, longer than a datagram."""
    dropped_stranger: int = 0
    """From an address that is no peer's."""
    dropped_malformed: int = 0
    """Datagrams that are no VXLAN of this VNI, or too short for a frame."""


@dataclass(slots=True, eq=False)
class _Peer:
    address: int
    port: int
    gso: bool = True


class VxlanLink:
    """A UDP socket bound to `bind`, and the peers' addresses by the MAC of their node.

    The owner waits for `fileno()` to be readable and calls `receive` until it gives None. Raises OSError for an
    address that cannot be bound or found, ValueError for a VNI out of range.
    """

    def __init__(
        self, bind: Address, peers: Mapping[bytes, Address] | None = None, *, vni: int = 1, mtu: int = 1500
    ) -> None:
        if not 0 <= vni <= MAX_VNI:
            raise ValueError(f"a VNI is a number from 0 to {MAX_VNI}, not {vni}")
        self._vni = vni
        self._mtu = mtu
        self._peers: dict[tuple[int, int], _Peer] = {}
        self._stations: dict[bytes, _Peer] = {}
        self._learned: dict[bytes, _Peer] = {}
        self._waiting: deque[tuple[_Peer, Frames]] = deque()
        self._waiting_bytes = 0
        self._retry_at: float | None = None
        self._buffer = np.empty(_MESSAGES * _SLOT_BYTES, np.uint8)
        self._offsets = np.empty(_FRAMES, np.uint32)
        self._lengths = np.empty(_FRAMES, np.uint32)
        self._sources = ffi.new("sn_source[]", _MESSAGES)
        self._counts = ffi.new("uint32_t[2]")
        self._into = (
            ffi.from_buffer("uint8_t[]", self._buffer),
            ffi.from_buffer("uint32_t[]", self._offsets),
            ffi.from_buffer("uint32_t[]", self._lengths),
        )
        self.readable: bool | None = None
        """False: `receive` need not ask the kernel. An owner who waits for `fileno()` may say so, and True when it is
        readable; a batch that empties the socket makes it False again. None: it asks every time."""
        self.counted = VxlanCounters()
        self._socket = _open(bind)
        try:
            for mac, address in (peers or {}).items():
                self.add_peer(mac, address)
        except OSError:
            self._socket.close()
            raise
        self.gro = bool(lib.sn_enable_gro(self._socket.fileno()))
        """The kernel joins datagrams on their way in."""

    def add_peer(self, mac: bytes, address: Address) -> None:
        """Hears and reaches the node with this MAC at this address from now on. Raises OSError."""
        host, port = _resolve(address)
        peer = self._peers.setdefault((host, port), _Peer(host, port))
        self._stations[mac] = peer
        self._learned.pop(mac, None)

    @property
    def peer_count(self) -> int:
        return len(self._stations)

    @property
    def address(self) -> Address:
        """Where the socket is bound: with port 0 asked for, the port it got."""
        host, port = self._socket.getsockname()
        return host, port

    @property
    def receive_buffer_bytes(self) -> int:
        """What the system granted of SOCKET_BUFFER_BYTES. Less than the senders' windows together means losses here
        (`link_kernel_dropped_datagrams`); on Linux, net.core.rmem_max bounds it for all but root."""
        # Linux doubles what was asked for, to have room for its own bookkeeping, and reports the double.
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

    @property
    def mtu(self) -> int:
        return self._mtu

    def fileno(self) -> int:
        return self._socket.fileno()

    # --- the way out

    def send(self, frames: Frames, now: float) -> None:
        if len(frames) == 0:
            return
        if not self._peers:
            self.counted.dropped_no_peer += len(frames)
            return
        start = int(frames.offsets[0])
        destination = frames.data[start : start + 6].tobytes()
        peer = self._stations.get(destination) or self._learned.get(destination)
        for target in self._peers.values() if peer is None else (peer,):
            self._send_to(target, frames, now)

    def _send_to(self, peer: _Peer, frames: Frames, now: float) -> None:
        if self._waiting:
            self._queue(peer, frames)
        elif (rest := self._push(peer, frames)) is not None:
            self._queue(peer, rest)
            self._retry_at = now + RETRY_S

    def _queue(self, peer: _Peer, frames: Frames) -> None:
        if self._waiting_bytes + frames.nbytes > SEND_LIMIT_BYTES:
            self.counted.dropped_full += len(frames)
            return
        self._waiting.append((peer, frames))
        self._waiting_bytes += frames.nbytes

    def _push(self, peer: _Peer, frames: Frames) -> Frames | None:
        """Hands frames to the kernel. Returns those that it had no room for, None if nothing is left to do."""
        sent = 0
        refused = False
        while sent < len(frames):
            rest = frames.select(slice(sent, None)) if sent else frames
            result: int = lib.sn_vxlan_send(
                self._socket.fileno(),
                peer.address,
                peer.port,
                self._vni,
                ffi.from_buffer("uint8_t[]", rest.data),
                ffi.from_buffer("uint32_t[]", rest.offsets),
                ffi.from_buffer("uint32_t[]", rest.lengths),
                len(rest),
                peer.gso,
            )
            if result > 0:
                done = rest if result == len(rest) else rest.select(slice(result))
                sent += result
                self.counted.sent_frames += result
                self.counted.sent_bytes += done.nbytes
            elif -result in _FULL:
                return rest
            elif peer.gso and -result in _NO_GSO:
                peer.gso = False
            elif -result == errno.ECONNREFUSED and not refused:
                refused = True  # what an earlier datagram met; telling has cleared it
            else:
                self.counted.dropped_send_error += len(rest)
                return None
        return None

    def advance(self, now: float) -> None:
        if self._retry_at is None or now < self._retry_at:
            return
        self._retry_at = None
        while self._waiting:
            peer, frames = self._waiting.popleft()
            self._waiting_bytes -= frames.nbytes
            rest = self._push(peer, frames)
            if rest is not None:
                self._waiting.appendleft((peer, rest))
                self._waiting_bytes += rest.nbytes
                self._retry_at = now + RETRY_S
                return

    def next_time(self) -> float | None:
        return self._retry_at

    def room(self, now: float) -> int:  # noqa: ARG002
        return 0 if self._waiting else SEND_LIMIT_BYTES

    # --- the way in

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        for _ in range(MAX_FOREIGN_BATCHES):
            if self.readable is False:
                return None
            found: int = lib.sn_vxlan_receive(
                self._socket.fileno(),
                self._vni,
                self._into[0],
                _SLOT_BYTES,
                _MESSAGES,
                self._into[1],
                self._into[2],
                _FRAMES,
                self._sources,
                self._counts,
                self._counts + 1,
            )
            if -found == errno.ECONNREFUSED:
                continue  # what a datagram to a dead peer met; telling has cleared it
            count, malformed = (self._counts[0], self._counts[1]) if found >= 0 else (0, 0)
            if self.readable and found >= 0 and count + malformed < _MESSAGES:
                self.readable = False
            self.counted.dropped_malformed += malformed
            if count == 0 and malformed == 0:
                return None
            frames = self._of_peers(found, Frames(self._buffer, self._offsets[:count], self._lengths[:count]))
            if len(frames):
                self.counted.received_frames += len(frames)
                self.counted.received_bytes += frames.nbytes
                return frames
        return None

    def _of_peers(self, found: int, frames: Frames) -> Frames:
        """Those of the frames that come from peers. Remembers where their senders are."""
        foreign: list[tuple[int, int]] = []
        for index in range(found):
            source = self._sources[index]
            first, count = source.first, source.count
            peer = self._peers.get((source.address, source.port))
            if peer is None:
                foreign.append((first, first + count))
                continue
            start = int(frames.offsets[first]) + 6
            self._learn(frames.data[start : start + 6].tobytes(), peer)
        if not foreign:
            return frames
        chosen = np.ones(len(frames), np.bool_)
        for first, end in foreign:
            chosen[first:end] = False
            self.counted.dropped_stranger += end - first
        return frames.select(chosen)

    def _learn(self, mac: bytes, peer: _Peer) -> None:
        if mac in self._stations or self._learned.get(mac) is peer or mac[0] & 1:
            return
        self._learned.pop(mac, None)
        if len(self._learned) == MAX_LEARNED:
            del self._learned[next(iter(self._learned))]
        self._learned[mac] = peer

    # --- the rest

    def counters(self) -> dict[str, int]:
        own = {f"link_{name}": value for name, value in asdict(self.counted).items()}
        return {**own, "link_kernel_dropped_datagrams": self._kernel_drops()}

    def _kernel_drops(self) -> int:
        """Datagrams that came while the socket's receive buffer was full; 0 where the system does not tell."""
        with contextlib.suppress(OSError, struct.error):
            drops: int = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[8]
            return drops
        return 0

    def close(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self._retry_at = None
        self._peers.clear()
        self._socket.close()


def _resolve(address: Address) -> tuple[int, int]:
    """IPv4 address in host order, and port. Raises OSError, with the name in its text."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise OSError(error.errno, f"no IPv4 address for {host!r}: {error.strerror}") from error
    return int.from_bytes(socket.inet_aton(str(found[0][4][0])), "big"), port


def _open(bind: Address) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        for plain, force in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
            opened.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER_BYTES)
        opened.bind(bind)
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"cannot bind {bind[0]}:{bind[1]}: {error.strerror}") from error
    return opened
