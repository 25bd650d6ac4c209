"""VXLAN over UDP (RFC 7348), over IPv4 or IPv6: the wire between daemons, or between a daemon and a kernel's VXLAN
device.

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
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import to_builtins

from softnic import underlay
from softnic._native import ffi, lib
from softnic.link.base import UdpPath
from softnic.link.endpoint import unpacked
from softnic.link.forwarding import ForwardingTable, LinkPeer, PeerPath
from softnic.link.rate_limited_log import Log, RateLimitedLog
from softnic.link.reach.candidates import Candidate
from softnic.link.reach.finder import OnDatagram
from softnic.link.reach.queues import Post, QueueWays
from softnic.link.received_batch import ReceivedBatch
from softnic.link.secure import channel
from softnic.link.secure.channel import EncryptionSettings, SecureChannel
from softnic.link.sockets import families_of, kernel_drops, open_socket, resolve
from softnic.link.unknown_sources import UnknownSourceFilter
from softnic.link.vxlan_counters import VxlanCounters
from softnic.packet.frames import Frames
from softnic.underlay import Address

MAX_VNI = (1 << 24) - 1
SEND_LIMIT_BYTES: int = lib.SN_LINK_BYTES
"""Limit of frames queued for a full socket."""
RETRY_S = 100e-6
MAX_FOREIGN_BATCHES = 8
"""Batches without one acceptable frame that one `receive` reads before it returns to its caller."""

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
        self._log = RateLimitedLog(log)
        self.received = ReceivedBatch()
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
        self._families = families_of(self._socket)
        self._forwarding = ForwardingTable(self._socket.family)
        self._source_filter = UnknownSourceFilter(self._socket, passes_some=encryption is not None)
        self.on_datagram: OnDatagram | None = None
        """Takes what is not the link's own (`deliver_datagrams`)."""
        self._on_silence: Callable[[bytes], None] = lambda _mac: None
        self._channel: SecureChannel | None = None
        self._ways: QueueWays | None = None
        """Where peers are, if frames are encrypted."""
        if encryption is not None:
            self._encrypt(encryption)
        try:
            for mac, address in (peers or {}).items():
                self.add_peer(mac, address)
        except OSError:
            self._socket.close()
            raise
        lib.sn_enable_gro(self._socket.fileno())  # without GRO, datagrams come one by one

    def _encrypt(self, encryption: EncryptionSettings) -> None:
        try:
            self._channel = SecureChannel(
                encryption,
                self._vni,
                self.received,
                send_hello=self._send_hello,
                on_fresh=self._on_fresh,
                log=self._log,
            )
        except OSError:
            self._socket.close()
            raise
        self._ways = QueueWays(
            self._forwarding,
            self._channel,
            is_first=encryption.place.number == 0,
            on_change=self._on_way,
            send=self._send_empty,
            on_suspect=lambda mac: self._on_silence(mac),
        )

    def _on_fresh(self, peer: LinkPeer, address: Address, now: float) -> None:
        assert self._ways is not None
        self._ways.finder.on_fresh(peer, address, now)

    def _on_way(self, peer: LinkPeer, now: float) -> None:
        self._update_filter()
        self._log.report(("way", peer.mac), f"a peer is reached at {peer} from now on", now)

    def _update_filter(self) -> None:
        self._source_filter.update(self._forwarding.addresses)

    def lead(self, others: Sequence[tuple[VxlanLink, Post]], inboxes: Any) -> None:
        """Agree on the sessions of all queues, of which this is the first. `others` has the link of each further one,
        and what posts to its thread; `inboxes` is an array with one for the sealed datagrams of each."""
        if self._channel is not None and self._ways is not None:
            self._ways.lead([(link._ways, post) for link, post in others if link._ways is not None])
            self._channel.share(inboxes)
            self._channel.lead([link._told_by(SecureChannel.adopt, post) for link, post in others])

    def follow(self, first: VxlanLink, post: Post, inboxes: Any) -> None:
        """Use the sessions that the link of the first queue, to whose thread `post` posts, agrees on."""
        if self._channel is not None and self._ways is not None and first._ways is not None:
            self._ways.follow(first._ways, post)
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
        addresses = resolve(address, self._families)
        if self._channel is not None:
            for there in filter(None, map(self._forwarding.peer_at, addresses)):
                self._channel.check(there, mac)
        gone = self._forwarding.add(mac, addresses)
        if self._channel is not None and self._ways is not None and gone is not None:
            self._channel.forget(gone)
            self._ways.finder.forget(gone)
        self._update_filter()

    # --- ways to peers, where frames are encrypted

    def offer(self, mac: bytes, candidates: Sequence[Candidate]) -> None:
        """Reach the node with this MAC at the best of these candidates that answers; add it as a peer if it is none.

        Hellos go to all of them at the next `advance`, which is due at once. What is no address of an IP that the
        socket reaches, another peer's, or the link's own is ignored.

        Raises
        ------
        OSError
            If no candidate is left, or frames are not encrypted: only what is authentic tells where a peer is.
        """
        ways = self._ways
        if ways is None:
            raise OSError(errno.EOPNOTSUPP, "candidates are for NICs that encrypt: start it with --identity or --key")
        usable = [each for each in candidates if self._is_usable(mac, each.address)]
        if not usable:
            raise OSError(errno.EADDRNOTAVAIL, "none of the candidates is an address that this NIC reaches")
        if self._forwarding.configured(mac) is None:
            self.add_peer(mac, min(usable, key=lambda each: (each.relayed, -each.preference)).address)
        peer = self._forwarding.configured(mac)
        assert peer is not None
        ways.finder.offer(peer, usable)
        self._update_filter()

    def _is_usable(self, mac: bytes, address: Address) -> bool:
        if not underlay.is_address(address[0]) or underlay.family(address[0]) not in self._families:
            return False
        if address == self.address:  # of a host in another network, with the same private address
            return False
        there = self._forwarding.peer_at(address)
        return there is None or there.mac == mac

    def send_datagram(self, address: Address, data: bytes) -> None:
        """Send a datagram that is not the link's own from its socket, once; it is lost where the socket is full.

        Raises
        ------
        ValueError
            If it does not begin with 0x13.
        """
        if data[:1] != bytes([lib.SN_OTHER_DATAGRAM]):
            raise ValueError("a datagram that is not the link's own begins with 0x13")
        with contextlib.suppress(OSError):
            self._socket.sendto(data, underlay.socket_address(address, self._socket.family))

    def deliver_datagrams(
        self, on_datagram: OnDatagram, on_silence: Callable[[bytes], None] = lambda _mac: None
    ) -> None:
        """Pass datagrams that are not the link's own on to a function from now on, and the MACs of peers with
        candidates that have not answered for half a second to another."""
        self.on_datagram, self._on_silence = on_datagram, on_silence

    def note_back(self, mac: bytes, now: float) -> None:
        """Note that there is reason to think that the node with a MAC can be reached again (`take_moved`)."""
        if self._ways is not None:
            self._ways.note_back(mac, now)

    def take_moved(self) -> Sequence[tuple[bytes, float]]:
        """Return and forget the MACs of nodes that were found at another address, or answer again, since the last
        call, with the time."""
        return () if self._ways is None else self._ways.take_moved()

    @property
    def channel(self) -> SecureChannel | None:
        """What encrypts frames, and has the keys of nodes; None: they are plain VXLAN."""
        return self._channel

    @property
    def reached(self) -> dict[bytes, PeerPath]:
        """How the node that has each configured MAC is reached."""
        return self._forwarding.reached

    @property
    def peer_count(self) -> int:
        return len(self._forwarding)

    @property
    def address(self) -> Address:
        """The bound address; with port 0 requested, the port that the kernel chose."""
        return underlay.of_socket(self._socket.getsockname())

    @property
    def mtu(self) -> int:
        return self._mtu

    def fileno(self) -> int:
        return self._socket.fileno()

    # --- egress

    def send(self, frames: Frames, now: float) -> None:
        if len(frames) == 0:
            return
        if not len(self._forwarding):
            self.counted.dropped_no_peer += len(frames)
            return
        start = int(frames.offsets[0])
        peer = self._forwarding.find(frames.data[start : start + 6].tobytes())
        for target in list(self._forwarding.peers) if peer is None else (peer,):
            self._send_to(target, frames, now)

    def direct_path(self, destination: bytes) -> UdpPath | None:
        """Return the path to a node, unless frames are encrypted or wait for the socket, or the node is sought."""
        peer = None if self._channel is not None else self._reached(destination)
        return None if peer is None else UdpPath(self._fd, peer.endpoint, self._vni, peer.gso)

    def path_to(self, destination: bytes) -> tuple[int, bool] | None:
        """Return the path of a turn to a node: the place of its address among `sorted_peers`, and whether it takes GSO.

        The turn seals if frames are encrypted. None as for `direct_path`.
        """
        peer = self._reached(destination)
        return None if peer is None else (self._forwarding.place(peer), peer.gso)

    def _reached(self, destination: bytes) -> LinkPeer | None:
        peer = None if self._waiting else self._forwarding.find(destination)
        return None if peer is None or peer.unheard else peer

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
        for endpoint in peer.unheard.values():
            self._hand_over(endpoint, frames, gso=False)
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
            result = self._hand_over(peer.endpoint, rest, peer.gso)
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

    def _send_empty(self, peer: LinkPeer, sealed: Frames) -> None:
        """Send a sealed datagram that is not counted as a frame, once."""
        self._hand_over(peer.endpoint, sealed, gso=False)

    def _hand_over(self, endpoint: Any, frames: Frames, gso: bool) -> int:
        """Return how many frames the kernel accepted, or -errno."""
        what = (*frames.arrays, len(frames), gso)
        plain = self._channel is None
        sent: int = (
            lib.sn_vxlan_send(self._fd, endpoint, self._vni, *what)
            if plain
            else lib.sn_udp_send(self._fd, endpoint, *what)
        )
        return sent

    def _send_hello(self, peer: LinkPeer, hello: bytes, to: Address | None) -> None:
        """Send a hello to an address, or wherever a peer may be. A lost one is repeated by the handshake's timer."""
        for address in (peer.address, *peer.unheard) if to is None else (to,):
            with contextlib.suppress(OSError):
                self._socket.sendto(hello, underlay.socket_address(address, self._socket.family))

    def advance(self, now: float) -> None:
        self._source_filter.expire(now)
        if self._channel is not None and self._ways is not None:
            self._ways.finder.advance(now)
            self._channel.advance(now)
            self._send_released(now)
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
        found_at = math.inf if self._ways is None else self._ways.finder.next_time()
        times = (hello_at, self._retry_at, *(time for time in (ends, found_at) if time != math.inf))
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
            if found.frames:
                self._learn(peers, now)
            if found.malformed or found.unknown:
                self._count_foreign(now)
                peers, keys = self.sorted_peers()  # strangers may be peers from now on
                if not found.frames and self._readmit(now):
                    self._learn(peers, now)
            if found.frames:
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
        ways, foreign = self._ways, channel.foreign_hello()
        if foreign is not None and ways is not None:
            ways.finder.note_foreign(foreign, now)
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
            self._channel.use(peers, keys, self._forwarding.sorted_addresses())
        return peers, keys

    def sender_macs(self) -> list[int]:
        """Return the MAC address from which each of `sorted_peers` is likely to send; 0: it is looked at first."""
        return self._forwarding.sender_macs()

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
            moved = self._examine_strangers(now)
            unknown = found.unknown - (0 if self._ways is None else self._ways.finder.passed_on)
            counted.dropped_unknown_source += unknown
            if moved or not unknown:
                return  # they are those of a peer that has moved, or not the link's
            last = underlay.text(unpacked(bytes(ffi.buffer(ffi.addressof(found, "unknown_source")))))
            self._log.report(
                "unknown source", f"{last} is not a peer of this NIC: its datagrams are dropped", now, unknown
            )
            if self._source_filter.count(unknown, self._forwarding.addresses, now):
                counted.unknown_source_floods += 1

    def _examine_strangers(self, now: float) -> bool:
        """Look for peers among unknown sources. Returns whether one has moved."""
        ways = self._ways
        if ways is None:
            return False
        moved = ways.finder.examine(self.received.found, self.received.memory[0], self.on_datagram, now)
        self._send_released(now)
        return moved

    def _readmit(self, now: float) -> bool:
        """List what was kept of strangers that are peers now, and open it. Returns whether there are frames."""
        if self._channel is None:
            return False
        taken = self.received.readmit(self._channel.place_of)
        self.counted.dropped_unknown_source -= taken
        if taken:
            for _ in self._channel.open(now):
                self.examine(now)
        return bool(self.received.found.frames)

    def _learn(self, peers: list[LinkPeer], now: float) -> None:
        """Learn where the senders of a batch are."""
        for index in range(self.received.found.sources):
            source = self.received.sources[index]
            start = self.received.offsets.item(source.first) + 6
            peer = peers[source.peer]
            self._forwarding.learn(self.received.buffer[start : start + 6].tobytes(), peer)
            if self._ways is None:
                self._forwarding.hear(peer, source.peer, now)
            else:
                self._ways.finder.hear(peer, source.peer, now)

    # --- management

    def counters(self) -> dict[str, int]:
        if self._ways is not None:
            self.counted.peers_moved = self._ways.moves
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
