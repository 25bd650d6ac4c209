"""VXLAN over UDP (RFC 7348): the wire between daemons, or between a daemon and a kernel's VXLAN device.

Only configured peers are accepted, identified by the address and port that they send from. (A kernel's VXLAN device
sends from many ports unless configured with `srcport P P+1`.) Frames to a group address or to a MAC of unknown location
go to all peers. With a key the datagrams are encrypted instead of VXLAN, and everything else is the same.

Batches go to the kernel without a copy, headers written into the headroom: GSO takes up to 64 equal frames a datagram,
and loopback passes them to the receiver's GRO in one piece. A path without GSO gets single datagrams. While the socket
is full, frames wait, `tx_space` is 0 and `advance` retries.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import to_builtins

from softnic._native import lib
from softnic.link.base import UdpPath
from softnic.link.forwarding import ForwardingTable, LinkPeer, endpoint
from softnic.link.rate_limited_log import Log, RateLimitedLog
from softnic.link.received_batch import ReceivedBatch
from softnic.link.secure import channel
from softnic.link.secure.channel import EncryptionSettings, SecureChannel
from softnic.link.sockets import Address, kernel_drops, open_socket, resolve
from softnic.link.unknown_sources import UnknownSourceFilter
from softnic.link.vxlan_counters import VxlanCounters
from softnic.packet.frames import Frames

MAX_VNI = (1 << 24) - 1
SEND_LIMIT_BYTES: int = lib.SN_LINK_BYTES
"""Limit of frames queued for a full socket."""
RETRY_S = 100e-6
MAX_FOREIGN_BATCHES = 8
"""Batches without one acceptable frame that one `receive` reads before it returns to its caller."""

Post = Callable[[Callable[[], object]], None]
"""Has a queue call a function between two turns."""
T = TypeVar("T")

_FULL = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS}
_NO_GSO = {errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.EOPNOTSUPP}


class VxlanLink:
    """A UDP socket bound to `bind`. The owner waits until `fileno()` is readable and calls `receive` until it returns
    None.

    Parameters
    ----------
    bind : tuple of str and int
        Address and port to bind.
    peers : mapping of bytes to address
        Address of each peer, by the MAC of its node.
    vni : int
        VXLAN network identifier.
    mtu : int
        Bytes of IPv4 that a frame may carry.
    encryption : EncryptionSettings, optional
        Encrypt every datagram (softnic/link/secure) and accept no other.
    shared : bool
        Share the port with the links of other queues (native/nic/steering.h).
    log : callable
        Takes lines about rejected senders.

    Raises
    ------
    OSError
        If an address cannot be bound or resolved.
    ValueError
        If the VNI is out of range.
    """

    def __init__(
        self,
        bind: Address,
        peers: Mapping[bytes, Address] | None = None,
        *,
        vni: int = 1,
        mtu: int = 1500,
        encryption: EncryptionSettings | None = None,
        shared: bool = False,
        log: Log = lambda _line: None,
    ) -> None:
        if not 0 <= vni <= MAX_VNI:
            raise ValueError(f"a VNI is a number from 0 to {MAX_VNI}, not {vni}")
        self._vni = vni
        self._mtu = mtu
        self._forwarding = ForwardingTable()
        self._log = RateLimitedLog(log)
        self.received = ReceivedBatch()
        self._channel = self._open_channel(encryption) if encryption is not None else None
        self._listed: int = vni if encryption is None else lib.SN_ANY_DATAGRAM
        self._waiting: deque[tuple[LinkPeer, Frames]] = deque()
        self._waiting_bytes = 0
        self._retry_at: float | None = None
        self.readable: bool | None = None
        """False: `receive` need not ask the kernel. An owner that waits for `fileno()` sets it to False once and to
        True when the socket is readable; a batch that empties the socket resets it. None: the kernel is asked every
        time."""
        self.has_batch = False
        """A batch was read, and opened, in the memory that `lend` has lent, and `receive` is to return it."""
        self.counted = VxlanCounters()
        self._socket = open_socket(bind, shared)
        self._fd = self._socket.fileno()
        self._source_filter = UnknownSourceFilter(self._socket)
        try:
            for mac, address in (peers or {}).items():
                self.add_peer(mac, address)
        except OSError:
            self._socket.close()
            raise
        lib.sn_enable_gro(self._socket.fileno())  # without GRO, datagrams come one by one

    def _open_channel(self, encryption: EncryptionSettings) -> SecureChannel:
        return SecureChannel(encryption, self._vni, self.received, send_hello=self._send_hello, log=self._log)

    def lead(self, others: Sequence[tuple[VxlanLink, Post]], inboxes: Any) -> None:
        """Agree on the sessions of all queues, of which this is the first. `others` has the link of each further one,
        and what posts to its thread; `inboxes` is an array with one for the sealed datagrams of each."""
        if self._channel is not None:
            self._channel.share(inboxes)
            self._channel.lead([link._told_by(SecureChannel.adopt, post) for link, post in others])

    def follow(self, first: VxlanLink, post: Post, inboxes: Any) -> None:
        """Use the sessions that the link of the first queue, to whose thread `post` posts, agrees on."""
        if self._channel is not None:
            self._channel.share(inboxes)
            told = first._told_by
            self._channel.follow(told(SecureChannel.start, post), told(SecureChannel.settle, post))

    def _told_by(
        self, what: Callable[[SecureChannel, LinkPeer, T, float], None], post: Post
    ) -> Callable[[bytes, T, float], None]:
        """Return what another queue calls to tell this one's channel something about the node that has a MAC."""

        def tell(mac: bytes, about: T, now: float) -> None:
            post(partial(self._hear, what, mac, about, now))

        return tell

    def _hear(
        self, what: Callable[[SecureChannel, LinkPeer, T, float], None], mac: bytes, about: T, now: float
    ) -> None:
        channel, peer = self._channel, self._forwarding.find(mac)
        assert channel is not None
        if peer is not None:  # it may have left
            what(channel, peer, about, now)
            self._send_released(now)

    def add_peer(self, mac: bytes, address: Address) -> None:
        """Accept and reach the node with this MAC at this address from now on. Raises OSError."""
        host, port = resolve(address)
        there = self._forwarding.peer_at(host, port)
        if self._channel is not None and there is not None:
            self._channel.check(there, mac)
        gone = self._forwarding.add(mac, host, port)
        if self._channel is not None and gone is not None:
            self._channel.forget(gone)
        self._source_filter.update(self._forwarding.peers)

    @property
    def peer_count(self) -> int:
        return len(self._forwarding)

    @property
    def address(self) -> Address:
        """The bound address; with port 0 requested, the port that the kernel chose."""
        host, port = self._socket.getsockname()
        return host, port

    @property
    def mtu(self) -> int:
        return self._mtu

    def fileno(self) -> int:
        return self._socket.fileno()

    # --- egress

    def send(self, frames: Frames, now: float) -> None:
        if len(frames) == 0:
            return
        if not self._forwarding.peers:
            self.counted.dropped_no_peer += len(frames)
            return
        start = int(frames.offsets[0])
        peer = self._forwarding.find(frames.data[start : start + 6].tobytes())
        for target in list(self._forwarding.peers) if peer is None else (peer,):
            self._send_to(target, frames, now)

    def direct_path(self, destination: bytes) -> UdpPath | None:
        """Return the path to a node, unless frames are encrypted or wait for the socket."""
        return None if self._channel is not None else self.path_to(destination)

    def path_to(self, destination: bytes) -> UdpPath | None:
        """Return the path of a turn to a node, which seals if frames are encrypted, unless some wait for the socket."""
        if self._waiting:
            return None
        peer = self._forwarding.find(destination)
        return None if peer is None else (self._fd, peer.address, peer.port, self._vni, peer.gso)

    def on_direct_sent(self, frames: int, wire_bytes: int) -> None:
        self.counted.sent_frames += frames
        self.counted.sent_bytes += wire_bytes

    def _send_to(self, peer: LinkPeer, frames: Frames, now: float) -> None:
        if self._channel is None:
            self._send_datagrams(peer, frames, now)
        else:
            for encrypted in self._channel.encrypt(peer, frames, now):
                self._send_datagrams(peer, encrypted, now)

    def _send_datagrams(self, peer: LinkPeer, frames: Frames, now: float) -> None:
        if self._waiting:
            self._queue(peer, frames)
        elif (rest := self._push(peer, frames)) is not None:
            self._queue(peer, rest)
            self._retry_at = now + RETRY_S

    def _queue(self, peer: LinkPeer, frames: Frames) -> None:
        if self._waiting_bytes + frames.nbytes > SEND_LIMIT_BYTES:
            self.counted.dropped_full += len(frames)
            return
        # Encrypted frames are in a buffer that the next batch overwrites.
        self._waiting.append((peer, frames if self._channel is None else Frames.of(frames, frames.packet_id)))
        self._waiting_bytes += frames.nbytes

    def _push(self, peer: LinkPeer, frames: Frames) -> Frames | None:
        """Pass frames to the kernel. Returns those that did not fit, None if nothing is left to do."""
        sent = 0
        refused = False
        while sent < len(frames):
            rest = frames.select(slice(sent, None)) if sent else frames
            result = self._hand_over(peer, rest)
            if result > 0:
                done = rest if result == len(rest) else rest.select(slice(result))
                sent += result
                self.counted.sent_frames += result
                self.counted.sent_bytes += done.nbytes - (channel.OVERHEAD * result if self._channel is not None else 0)
            elif -result in _FULL:
                return rest
            elif peer.gso and -result in _NO_GSO:
                peer.disable_gso()
                self._forwarding.changes += 1
            elif -result == errno.ECONNREFUSED and not refused:
                refused = True  # an error of an earlier datagram, now cleared
            else:
                self.counted.dropped_send_error += len(rest)
                return None
        return None

    def _hand_over(self, peer: LinkPeer, frames: Frames) -> int:
        """Return how many frames the kernel accepted, or -errno."""
        what = (*frames.arrays, len(frames), peer.gso)
        where = self._fd, peer.address, peer.port
        plain = self._channel is None
        sent: int = lib.sn_vxlan_send(*where, self._vni, *what) if plain else lib.sn_udp_send(*where, *what)
        return sent

    def _send_hello(self, peer: LinkPeer, hello: bytes) -> None:
        """Send a hello. A lost one is repeated by the handshake's timer."""
        with contextlib.suppress(OSError):
            self._socket.sendto(hello, (socket.inet_ntoa(peer.address.to_bytes(4, "big")), peer.port))

    def advance(self, now: float) -> None:
        self._source_filter.expire(now)
        if self._channel is not None:
            self._channel.advance(now)
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
        hello_at = None if self._channel is None else self._channel.next_time()
        ends = self._source_filter.ends
        times = (hello_at, self._retry_at, None if ends == math.inf else ends)
        return min((time for time in times if time is not None), default=None)

    def tx_space(self, now: float) -> int:  # noqa: ARG002
        return 0 if self._waiting else SEND_LIMIT_BYTES

    # --- ingress

    def receive(self, now: float) -> Frames | None:
        peers, keys = self.sorted_peers()
        found = self.received.found
        for _ in range(MAX_FOREIGN_BATCHES):
            if self.has_batch:
                self.has_batch = False
            elif self.readable is False:
                return None
            elif error := self._read(keys, len(peers), now):
                if -error == errno.ECONNREFUSED:
                    continue  # the error of a datagram to a dead peer, now cleared
                return None
            if not found.messages:
                return None
            if found.malformed or found.unknown:
                self._count_foreign(now)
            if found.frames:
                self._learn(peers)
                frames = self.received.frames(found.frames)
                self.counted.received_frames += found.frames
                self.counted.received_bytes += frames.nbytes
                return frames
        return None

    def _read(self, keys: Any, peers: int, now: float) -> int:
        """Read a batch, and open it if it is encrypted. Returns 0 or -errno."""
        error = self.received.read(self._fd, self._listed, keys, peers)
        if not error and self.readable and self.received.is_last:
            self.readable = False
        if self._channel is not None and not error:
            for _ in self._channel.open(now):
                self.examine(now)
        return error

    def examine(self, now: float) -> None:
        """Look at the opening of a batch, which has paused, and send frames that waited for a session which now
        exists."""
        channel = self._channel
        assert channel is not None
        channel.examine(now)
        self._send_released(now)

    def _send_released(self, now: float) -> None:
        assert self._channel is not None
        for peer, frames in self._channel.take_released():
            self._send_to(peer, frames, now)

    def lend(self, turn: Any) -> None:
        """Have an `sn_turn` read batches into the memory of this link."""
        turn.wire, turn.vni = self._fd, self._listed
        if self._channel is not None:
            turn.channel = self._channel.c
        self.received.lend(turn.rx)

    def count_batches(self, counts: Any) -> None:
        """Add what an `sn_turn` has counted."""
        counted = self.counted
        counted.sent_frames += counts.link_sent_frames
        counted.sent_bytes += counts.link_sent_bytes
        counted.received_frames += counts.link_received_frames
        counted.received_bytes += counts.link_received_bytes
        counts.link_sent_frames = counts.link_sent_bytes = 0
        counts.link_received_frames = counts.link_received_bytes = 0

    def sorted_peers(self) -> tuple[list[LinkPeer], Any]:
        """Return the peers, and their keys for `sn_vxlan_receive`; the same objects until a peer is added."""
        peers, keys = self._forwarding.sorted_peers()
        if self._channel is not None:
            self._channel.use(peers, keys)
        return peers, keys

    @property
    def is_waiting(self) -> bool:
        """Whether frames wait for the socket."""
        return bool(self._waiting)

    @property
    def path_changes(self) -> int:
        """How often the result of `direct_path` may have changed for some MAC address."""
        return self._forwarding.changes

    def _count_foreign(self, now: float) -> None:
        found, counted = self.received.found, self.counted
        counted.dropped_malformed += found.malformed
        if found.encrypted:
            text = "a peer encrypts its datagrams and this NIC has no key: they are dropped"
            self._log.report("encrypted", text, now, found.encrypted)
        if found.unknown:
            counted.dropped_unknown_source += found.unknown
            last = endpoint(found.unknown_address, found.unknown_port)
            self._log.report(
                "unknown source", f"{last} is not a peer of this NIC: its datagrams are dropped", now, found.unknown
            )
            if self._source_filter.count(found.unknown, self._forwarding.peers, now):
                counted.unknown_source_floods += 1

    def _learn(self, peers: list[LinkPeer]) -> None:
        """Learn where the senders of a batch are."""
        for index in range(self.received.found.sources):
            source = self.received.sources[index]
            start = self.received.offsets.item(source.first) + 6
            self._forwarding.learn(self.received.buffer[start : start + 6].tobytes(), peers[source.peer])

    # --- management

    def counters(self) -> dict[str, int]:
        own = {f"link_{name}": value for name, value in to_builtins(self.counted).items()}
        if self._channel is not None:
            for name, value in to_builtins(self._channel.counted).items():
                own[f"link_{name}"] = own.get(f"link_{name}", 0) + value
        return {**own, "link_kernel_dropped_datagrams": kernel_drops(self._socket)}

    def close(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self._retry_at = None
        self._forwarding.clear()
        self._socket.close()
