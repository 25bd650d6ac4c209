"""TCP connections of nodes that no UDP reaches: each carries datagrams of one node, both ways.

A datagram is preceded by its length, 2 bytes, and by the server's port that it is sent to or from, 4 bytes. The first
one is a request of the protocol whose MAC is right, and is answered as any other; a connection without one is closed
after FIRST_S. To the protocol
and the relay a tunnel is one more address.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

from softnic.link.reach.messages import FIRST_BYTE
from softnic.link.reach.token import Grant
from softnic.packet.frames import Frames
from softnic.underlay import Address

HEADER = struct.Struct("!HI")
FIRST_S = 5.0
"""A connection proves itself within this time."""
QUEUE_BYTES = 1 << 18
"""Limit of what waits for one connection; more is dropped."""
MOST_TUNNELS = 4096
MOST_UNPROVEN = 256
HOST = "tunnel"
"""Host of the addresses that stand for tunnels."""

GrantIn = Callable[[bytes], Grant | None]
OnRequest = Callable[[int, Address, bytes], None]
OnFrames = Callable[[int, Address, Frames], None]


@dataclass(slots=True)
class TunnelCounters:
    """What happened to connections and to datagrams for them."""

    tunnels_opened: int = 0
    tunnels_refused: int = 0
    """Without a genuine first message, or beyond a limit."""
    tunnels_dropped_full: int = 0
    """Datagrams for a connection whose queue was full."""


class Tunnels:
    """All tunnels of a server.

    Parameters
    ----------
    grant_in : callable
        Returns the job of a genuine datagram, or None.
    on_request : callable
        Takes port, source and bytes of a message of the protocol.
    on_frames : callable
        Takes port, source and frames for the relay.
    """

    def __init__(self, *, grant_in: GrantIn, on_request: OnRequest, on_frames: OnFrames) -> None:
        self.grant_in, self.on_request, self.on_frames = grant_in, on_request, on_frames
        self._open: dict[Address, _Tunnel] = {}
        self._per_job: dict[bytes, int] = {}
        self._unproven: dict[_Tunnel, None] = {}
        self._number = 0
        self.counted = TunnelCounters()

    def __len__(self) -> int:
        """Return the number of connections that have proven themselves."""
        return len(self._open)

    def protocol(self) -> asyncio.Protocol:
        """Return what serves a new connection."""
        return _Tunnel(self)

    def begin(self, tunnel: _Tunnel) -> None:
        """Note a connection that has proven nothing; the oldest of too many is closed."""
        self._unproven[tunnel] = None
        if len(self._unproven) > MOST_UNPROVEN:
            next(iter(self._unproven)).refuse()

    def admit(self, tunnel: _Tunnel, grant: Grant) -> Address | None:
        """Return the address of a connection that has proven itself; None: there are too many."""
        self._unproven.pop(tunnel, None)
        if len(self._open) >= MOST_TUNNELS or self._per_job.get(grant.job, 0) >= 2 * grant.nodes:
            return None
        self._number += 1
        address = f"{HOST}{self._number}", 1
        self._open[address] = tunnel
        self._per_job[grant.job] = self._per_job.get(grant.job, 0) + 1
        self.counted.tunnels_opened += 1
        return address

    def end(self, tunnel: _Tunnel) -> None:
        """Forget a connection."""
        self._unproven.pop(tunnel, None)
        if tunnel.address is not None and tunnel.grant is not None:
            del self._open[tunnel.address]
            self._per_job[tunnel.grant.job] -= 1
            if not self._per_job[tunnel.grant.job]:
                del self._per_job[tunnel.grant.job]

    def send(self, address: Address, port: int, data: bytes) -> bool:
        """Send a datagram from a port through a tunnel. Returns False if it was dropped."""
        tunnel = self._open.get(address)
        if tunnel is None or not tunnel.send(port, data):
            self.counted.tunnels_dropped_full += 1
            return False
        return True

    def send_frames(self, address: Address, port: int, frames: Frames) -> int:
        """Send frames likewise. Returns how many were accepted."""
        tunnel = self._open.get(address)
        return 0 if tunnel is None else sum(tunnel.send(port, each) for each in frames)

    def close_all(self) -> None:
        """Close all connections."""
        for tunnel in [*self._open.values(), *self._unproven]:
            tunnel.close()


class _Tunnel(asyncio.Protocol):
    """One connection."""

    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels = tunnels
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._deadline: asyncio.TimerHandle | None = None
        self.address: Address | None = None
        self.grant: Grant | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(FIRST_S, self.refuse)
        self._tunnels.begin(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        frames: dict[int, list[bytes]] = {}
        at = 0
        while len(self._received) - at >= HEADER.size:
            length, port = HEADER.unpack_from(self._received, at)
            if len(self._received) - at < HEADER.size + length:
                break
            datagram = bytes(self._received[at + HEADER.size : at + HEADER.size + length])
            at += HEADER.size + length
            if self.address is None and not self._prove(datagram):
                return
            assert self.address is not None
            if datagram[:1] == bytes((FIRST_BYTE,)):
                self._tunnels.on_request(port, self.address, datagram)
            else:
                frames.setdefault(port, []).append(datagram)
        del self._received[:at]
        if self.address is not None:
            for port, datagrams in frames.items():
                self._tunnels.on_frames(port, self.address, Frames.of(datagrams))

    def _prove(self, datagram: bytes) -> bool:
        grant = self._tunnels.grant_in(datagram)
        address = None if grant is None else self._tunnels.admit(self, grant)
        if grant is None or address is None:
            self.refuse()
            return False
        self.address, self.grant = address, grant
        if self._deadline is not None:
            self._deadline.cancel()
        return True

    def send(self, port: int, data: bytes) -> bool:
        if self._transport is None or self._transport.get_write_buffer_size() > QUEUE_BYTES:
            return False
        self._transport.write(HEADER.pack(len(data), port) + data)
        return True

    def refuse(self) -> None:
        self._tunnels.counted.tunnels_refused += 1
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._tunnels.end(self)
