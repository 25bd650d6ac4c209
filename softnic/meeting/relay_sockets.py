"""The relay's sockets: batches of datagrams from one node's address to another's, without a look at more than their
first byte.

Each port has two sockets, between which the kernel decides by the first byte of a datagram (SO_REUSEPORT with a classic
BPF program): one for requests of the protocol, and one for sealed frames, which is read in batches of known sources
alone. What GRO has joined leaves by GSO.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softnic import underlay
from softnic._native import ffi, lib
from softnic.link.endpoint import packed
from softnic.link.reach.messages import FIRST_BYTE
from softnic.link.reach.relay_table import RelayTable
from softnic.link.received_batch import ReceivedBatch
from softnic.link.sockets import open_socket
from softnic.packet.frames import Frames
from softnic.underlay import Address

FIRST_SEALED, LAST_SEALED = 0x10, 0x12
"""First bytes of what is forwarded."""
_BATCHES = 4
"""Batches of one port before the others have their turn."""
_REQUESTS = 64
_MOST_REQUEST = 2048
_MOST_ENDPOINTS = 8192
_SO_ATTACH_REUSEPORT_CBPF = 51
_PROGRAM = b"".join(
    struct.pack("HBBI", *step) for step in ((0x30, 0, 0, 0), (0x15, 0, 1, FIRST_BYTE), (0x06, 0, 0, 1), (0x06, 0, 0, 0))
)
"""Loads the first byte, and returns the number of the socket: 1 for requests, else 0."""
_REQUEST_BUFFER_BYTES = 1 << 16
_NO_GSO = {errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.EOPNOTSUPP}

OnRequest = Callable[[int, Address, bytes], None]
SendThroughTunnel = Callable[[Address, int, Frames], int]
"""Sends frames from a port through the tunnel of this address. Returns how many were accepted."""


@dataclass(slots=True)
class RelayCounters:
    """Each datagram that arrives is forwarded, or in exactly one of `relay_dropped_`."""

    relay_forwarded: int = 0
    relay_forwarded_bytes: int = 0
    relay_dropped_unknown: int = 0
    """From an address that is not bound."""
    relay_dropped_not_sealed: int = 0
    """No sealed frame by its first byte."""
    relay_dropped_unrouted: int = 0
    """The other node has not bound its address."""
    relay_dropped_rate: int = 0
    """Beyond the job's rate."""
    relay_dropped_full: int = 0
    """A socket or tunnel was full, or refused it."""
    relay_dropped_malformed: int = 0
    """Longer than a datagram can be received."""


@dataclass(slots=True, eq=False)
class _RelaySocket:
    """The sockets of one port, and the addresses that are bound there."""

    port: int
    data: socket.socket
    requests: socket.socket
    gso: bool = True
    changes: int = -1
    """State of the table's port that the following are of."""
    addresses: Sequence[Address] = ()
    keys: Any = None
    endpoints: dict[Address, Any] = field(default_factory=dict)


class RelaySockets:
    """All ports of a relay.

    Parameters
    ----------
    host : str
        Address to bind; "::" for all of both families.
    loop : AbstractEventLoop
        Waits for the sockets.
    on_request : callable
        Takes the port, the source and the bytes of what is for the protocol.
    through_tunnel : callable
        Sends what is for a tunnel.
    clock : callable
        Returns Unix time, seconds.
    """

    def __init__(
        self,
        host: str,
        loop: asyncio.AbstractEventLoop,
        *,
        on_request: OnRequest,
        through_tunnel: SendThroughTunnel,
        clock: Callable[[], float],
    ) -> None:
        self._host, self._loop, self._clock = host, loop, clock
        self._on_request, self._through_tunnel = on_request, through_tunnel
        self._sockets: dict[int, _RelaySocket] = {}
        self._batch = ReceivedBatch()
        self.counted = RelayCounters()

    def open(self, port: int, table: RelayTable) -> bool:
        """Open a port. Returns False if another program has it, or the kernel cannot tell requests from frames."""
        opened: list[socket.socket] = []
        try:
            open_socket((self._host, port)).close()  # nobody shares it yet
            opened += [open_socket((self._host, port), shared=True) for _ in range(2)]
            data, requests = opened
            program = ffi.from_buffer(_PROGRAM)
            what = struct.pack("HP", len(_PROGRAM) // 8, int(ffi.cast("uintptr_t", program)))
            data.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, what)
        except OSError:
            for each in opened:
                each.close()
            return False
        requests.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _REQUEST_BUFFER_BYTES)
        lib.sn_enable_gro(data.fileno())
        made = self._sockets[port] = _RelaySocket(port, data, requests)
        self._loop.add_reader(data.fileno(), self._on_data, made, table)
        self._loop.add_reader(requests.fileno(), self._on_requests, made)
        return True

    def close(self, port: int) -> None:
        """Close a port that is open."""
        gone = self._sockets.pop(port)
        for each in (gone.data, gone.requests):
            self._loop.remove_reader(each.fileno())
            each.close()

    def close_all(self) -> None:
        """Close all ports."""
        for port in list(self._sockets):
            self.close(port)

    def send(self, port: int, address: Address, data: bytes) -> None:
        """Send a message of the protocol from a port."""
        with contextlib.suppress(OSError, KeyError):
            sender = self._sockets[port].data
            sender.sendto(data, underlay.socket_address(address, sender.family))

    def _on_requests(self, own: _RelaySocket) -> None:
        for _ in range(_REQUESTS):
            try:
                data, source = own.requests.recvfrom(_MOST_REQUEST)
            except OSError:
                return
            self._on_request(own.port, underlay.of_socket(source), data)

    def _on_data(self, own: _RelaySocket, table: RelayTable) -> None:
        batch, found = self._batch, self._batch.found
        for _ in range(_BATCHES):
            self._refresh(own, table)
            if batch.read(own.data.fileno(), lib.SN_ANY_DATAGRAM, own.keys, len(own.addresses)) or not found.messages:
                return
            self.counted.relay_dropped_unknown += found.unknown
            self.counted.relay_dropped_malformed += found.malformed
            if found.frames:
                self._forward_batch(own, table)
            if batch.is_last or self._sockets.get(own.port) is not own:
                return

    @staticmethod
    def _refresh(own: _RelaySocket, table: RelayTable) -> None:
        port = table.port(own.port)
        if port is None or port.changes == own.changes:
            return
        keys = {packed(each, own.data.family): each for each in port.by_address if underlay.is_address(each[0])}
        ordered = sorted(keys)
        own.changes, own.addresses = port.changes, [keys[each] for each in ordered]
        own.keys = ffi.new("sn_endpoint[]", max(1, len(ordered)))
        ffi.memmove(own.keys, b"".join(ordered), sum(map(len, ordered)))

    def _forward_batch(self, own: _RelaySocket, table: RelayTable) -> None:
        frames = self._batch.frames(self._batch.found.frames)
        sealed = frames.data[frames.offsets] - np.uint8(FIRST_SEALED) <= LAST_SEALED - FIRST_SEALED  # modulo 256
        sealed &= frames.lengths > 0
        whole = bool(sealed.all())
        sources = self._batch.sources
        parts = [(sources[i].peer, sources[i].first, sources[i].count) for i in range(self._batch.found.sources)]
        for peer, first, count in parts:
            part = frames.select(slice(first, first + count))
            source = own.addresses[peer]
            if not whole:
                kept = sealed[first : first + count]
                self._set_aside(own, source, part.select(~kept))
                part = part.select(kept)
            if len(part):
                self.forward(table, own.port, source, part)

    def _set_aside(self, own: _RelaySocket, source: Address, others: Frames) -> None:
        """Take requests that GRO has joined to frames."""
        for each in others:
            if each[:1] == bytes((FIRST_BYTE,)):
                self._on_request(own.port, source, each)
            else:
                self.counted.relay_dropped_not_sealed += 1

    def forward(self, table: RelayTable, port: int, source: Address, frames: Frames) -> None:
        """Send frames that came from an address to a port to where they belong."""
        counted, count = self.counted, len(frames)
        now = self._clock()
        route = table.route(port, source, now)
        if route is None:
            counted.relay_dropped_unrouted += count
            return
        out, to = route
        total = frames.nbytes
        allowed = out.budget.take_some(now, total)
        if allowed < total:
            fitting = int(count * allowed / total)
            counted.relay_dropped_rate += count - fitting
            if not fitting:
                return
            frames = frames.select(slice(fitting))
        sent = self._send(out.port, to, frames)
        counted.relay_forwarded += sent
        counted.relay_forwarded_bytes += frames.nbytes if sent == len(frames) else frames.select(slice(sent)).nbytes
        counted.relay_dropped_full += len(frames) - sent

    def _send(self, port: int, to: Address, frames: Frames) -> int:
        """Return how many frames were accepted."""
        own = self._sockets[port]
        endpoint = own.endpoints.get(to)
        if endpoint is None:
            if not underlay.is_address(to[0]):
                return self._through_tunnel(to, port, frames)
            if len(own.endpoints) >= _MOST_ENDPOINTS:
                own.endpoints.clear()
            endpoint = own.endpoints[to] = ffi.new("sn_endpoint *")
            ffi.memmove(endpoint, packed(to, own.data.family), ffi.sizeof("sn_endpoint"))
        sent = 0
        refused = False
        while sent < len(frames):
            rest = frames.select(slice(sent, None)) if sent else frames
            result = lib.sn_udp_send(own.data.fileno(), endpoint, *rest.arrays, len(rest), own.gso)
            if result > 0:
                sent += result
            elif own.gso and -result in _NO_GSO:
                own.gso = False
            elif -result == errno.ECONNREFUSED and not refused:
                refused = True  # an error of an earlier datagram, now cleared
            else:
                break
        return sent
