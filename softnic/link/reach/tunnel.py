"""A node's way through TCP, where no UDP passes: for the NIC, ports of a server become addresses of this host.

One connection to a server carries datagrams, each behind its length, 2 bytes, and the server's port, 4 bytes. Each port
of the server that the node uses is a UDP socket of loopback: what the NIC sends there goes through the connection to
that port, and what comes from that port reaches the NIC from there. Queues are bounded: what does not fit is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from softnic import underlay
from softnic.link.reach.messages import MeetingMessageError, ProbeNat, grant_of, is_genuine, pack_request
from softnic.link.reach.token import Token
from softnic.underlay import IPV4, Address

HEADER = struct.Struct("!HI")
QUEUE_BYTES = 1 << 18
MOST_PORTS = 4096
CONNECT_S = 5.0
"""A connection exists, and the server has answered, within this time."""
TCP_PORT = 443
"""The port that nodes try besides the one with the number of the server's UDP port."""
_DATAGRAMS = 64
"""Datagrams of one socket before the others have their turn."""
_MOST_DATAGRAM = 0xFFFF
_SOCKET_BUFFER_BYTES = 1 << 20


@dataclass(slots=True)
class NodeTunnelCounters:
    """What happened to datagrams."""

    sent: int = 0
    received: int = 0
    dropped_full: int = 0
    """The connection's queue, or the NIC's socket, was full."""
    dropped_unknown: int = 0
    """From another sender than the NIC, or of a port that is not used."""


class Tunnel(asyncio.Protocol):
    """A connection to a server. `open` and `open_any` make one.

    Parameters
    ----------
    token : Token
        The job.
    wire : tuple of str and int
        The NIC's UDP socket, as loopback reaches it.
    """

    def __init__(self, token: Token, wire: Address) -> None:
        self._token, self._wire = token, wire
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._sockets: dict[int, socket.socket] = {}
        self._proven = asyncio.Event()
        self.lost = asyncio.Event()
        """Set when the connection has ended."""
        self.counted = NodeTunnelCounters()

    @classmethod
    async def open(cls, token: Token, public_key: bytes, to: Address, wire: Address, main_port: int) -> Tunnel:
        """Connect to a server and prove membership.

        Parameters
        ----------
        token : Token
            The job.
        public_key : bytes
            32 bytes.
        to : tuple of str and int
            TCP address of the server.
        wire : tuple of str and int
            The NIC's UDP socket; one that is bound to all addresses is reached by loopback.
        main_port : int
            The server's main UDP port.

        Raises
        ------
        OSError
            If no server of the job answers there within CONNECT_S.
        """
        host, port = wire
        if host in (underlay.ANY, underlay.ANY_IPV4):
            host = "127.0.0.1"
        loop = asyncio.get_running_loop()
        tunnel: Tunnel | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                _, tunnel = await loop.create_connection(lambda: cls(token, (host, port)), to[0], to[1])
                proof = ProbeNat(key=public_key, sequence=0, cookie=b"", how=0)
                tunnel.send(main_port, pack_request(proof, token.grant.pack(), token.admission))
                await tunnel._proven.wait()
        except BaseException as error:
            if tunnel is not None:
                tunnel.close()
            if isinstance(error, TimeoutError):
                where = underlay.text(to)
                raise OSError(f"no meeting server answers at {where} by TCP within {CONNECT_S:g} s") from error
            raise
        return tunnel

    @classmethod
    async def open_any(
        cls, token: Token, public_key: bytes, servers: Sequence[Sequence[Address]], wire: Address
    ) -> tuple[int, Tunnel]:
        """Connect to all servers of a token at once, at TCP_PORT and at the port with the number of the UDP port, and
        keep the first connection that a server answers.

        Parameters
        ----------
        token, public_key, wire
            As for `open`.
        servers : sequence of sequences of address
            The addresses of each of the token's servers (`gather.resolved`).

        Returns
        -------
        tuple of int and Tunnel
            Index of the server in the token, and the connection.

        Raises
        ------
        OSError
            If none answers within CONNECT_S.
        """
        tries = {
            asyncio.ensure_future(cls.open(token, public_key, (host, tcp), wire, port)): index
            for index, addresses in enumerate(servers)
            for host, port in addresses
            for tcp in dict.fromkeys((TCP_PORT, port))
        }
        waiting = set(tries)
        made: list[tuple[int, Tunnel]] = []
        try:
            while waiting and not made:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                made = [(tries[each], each.result()) for each in done if each.exception() is None]
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if not made:
            raise OSError(f"no meeting server answers by TCP at port {TCP_PORT} or that of UDP")
        for _, further in made[1:]:
            further.close()
        return made[0]

    def local(self, port: int) -> Address:
        """Return the address of this host that stands for a port of the server. Raises OSError."""
        own = self._sockets.get(port)
        if own is None:
            if len(self._sockets) >= MOST_PORTS:
                raise OSError("the tunnel has too many ports")
            own = self._sockets[port] = self._open_socket()
            self._loop.add_reader(own.fileno(), self._on_readable, port, own)
        return underlay.of_socket(own.getsockname())

    def _open_socket(self) -> socket.socket:
        family = underlay.family(self._wire[0])
        own = socket.socket(family, socket.SOCK_DGRAM)
        own.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            own.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        own.bind(("127.0.0.1" if family == IPV4 else "::1", 0))
        return own

    def _on_readable(self, port: int, own: socket.socket) -> None:
        for _ in range(_DATAGRAMS):
            try:
                data, source = own.recvfrom(_MOST_DATAGRAM)
            except OSError:
                return
            if underlay.of_socket(source) == self._wire:
                self.send(port, data)
            else:
                self.counted.dropped_unknown += 1

    def send(self, port: int, data: bytes) -> None:
        """Send a datagram to a port of the server, if the queue has room."""
        if self._transport is None or self._transport.get_write_buffer_size() > QUEUE_BYTES:
            self.counted.dropped_full += 1
            return
        self._transport.write(HEADER.pack(len(data), port) + data)
        self.counted.sent += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        at = 0
        while len(self._received) - at >= HEADER.size:
            length, port = HEADER.unpack_from(self._received, at)
            if len(self._received) - at < HEADER.size + length:
                break
            at += HEADER.size + length
            self._deliver(port, bytes(self._received[at - length : at]))
        del self._received[:at]

    def _deliver(self, port: int, datagram: bytes) -> None:
        if not self._proven.is_set():
            if self._is_of_server(datagram):
                self._proven.set()
            else:
                self.counted.dropped_unknown += 1
            return
        own = self._sockets.get(port)
        if own is None:
            self.counted.dropped_unknown += 1
            return
        try:
            own.sendto(datagram, underlay.socket_address(self._wire, own.family))
            self.counted.received += 1
        except OSError:
            self.counted.dropped_full += 1

    def _is_of_server(self, datagram: bytes) -> bool:
        """Return whether only a server of the job, or another node, can have sent this."""
        try:
            return grant_of(datagram) == self._token.grant.pack() and is_genuine(datagram, self._token.admission)
        except MeetingMessageError:
            return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._close_sockets()
        self.lost.set()

    def close(self) -> None:
        """End the connection."""
        self._close_sockets()
        if self._transport is not None:
            self._transport.abort()

    def _close_sockets(self) -> None:
        self._transport, ending = None, self._transport
        if ending is not None:
            ending.abort()
        for own in self._sockets.values():
            with contextlib.suppress(OSError):
                self._loop.remove_reader(own.fileno())
            own.close()
        self._sockets.clear()
