"""Runs a meeting client on asyncio's event loop: its timers, its datagrams, and a tunnel where no UDP passes.

The socket is the owner's: a NIC's, or that of a program which only wants to know the nodes of its job (register.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from softnic import underlay
from softnic.link.reach.client import MeetingClient
from softnic.link.reach.gather import local_addresses
from softnic.link.reach.token import Token
from softnic.link.reach.tunnel import Tunnel
from softnic.underlay import BOTH, Address

TUNNEL_AFTER_S = 1.5
"""Without any answer by UDP for this time, TCP is tried."""
TUNNEL_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""After attempts that failed, or a connection that was lost; the last one goes on."""
GATHER_S = 5.0
"""Between looks at this host's addresses."""
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Place:
    """What is needed to reach the servers of a job."""

    token: Token
    public_key: bytes
    """32 bytes by which other nodes know this one."""
    servers: Sequence[Sequence[Address]]
    """The addresses of each of the token's servers (`gather.resolved`)."""
    wire: Address
    """The address that the UDP socket is bound to."""

    def candidates(self) -> list[Address]:
        """Return where the socket may be reached."""
        host, port = self.wire
        if host == underlay.ANY:
            return local_addresses(port, BOTH)
        return local_addresses(port, [underlay.IPV4]) if host == underlay.ANY_IPV4 else [self.wire]

    def open_tunnel(self) -> Awaitable[tuple[int, Tunnel]]:
        """Connect to the first server that answers by TCP. Raises OSError."""
        return Tunnel.open_any(self.token, self.public_key, self.servers, self.wire)


def families(wire: Address) -> Collection[int]:
    """Return the families that a socket bound to an address reaches."""
    return BOTH if wire[0] == underlay.ANY else [underlay.family(wire[0])]


class MeetingLoop:
    """Runs a client from `start` until `close`, on the running event loop.

    Parameters
    ----------
    client : MeetingClient
        The client, which was given `place.candidates()`.
    place : Place
        How the servers are reached.
    send : callable
        Sends a datagram to an address, from the socket; it is lost where that is full.
    on_change : callable
        Called after each datagram: nodes, their candidates or the kind of NAT may have changed.
    """

    def __init__(
        self,
        client: MeetingClient,
        place: Place,
        send: Callable[[Address, bytes], None],
        on_change: Callable[[], None],
    ) -> None:
        self.client, self._place = client, place
        self._send, self._on_change = send, on_change
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tunnel: Tunnel | None = None
        self._tunnelling: asyncio.Task[None] | None = None
        self._gather_at = 0.0

    @property
    def is_tunnelled(self) -> bool:
        """Whether servers are reached through TCP."""
        return self._tunnel is not None and not self._tunnel.lost.is_set()

    def start(self) -> None:
        """Register, and look for UDP that does not pass."""
        self._gather_at = self._loop.time() + GATHER_S
        self._poll()
        self._tunnelling = self._loop.create_task(self._keep_tunnel())

    def leave(self) -> None:
        """Tell the servers that this node ends."""
        self._send_all(self.client.goodbye())

    def close(self) -> None:
        """Send no more, and end the tunnel."""
        if self._timer is not None:
            self._timer.cancel()
        if self._tunnelling is not None:
            self._tunnelling.cancel()
        if self._tunnel is not None:
            self._tunnel.close()

    def on_datagram(self, address: Address, data: bytes) -> None:
        """Take a datagram that begins with 0x13."""
        self.client.on_datagram(address, data, self._loop.time())
        self._poll()
        self._on_change()

    def refresh(self, key: bytes) -> None:
        """Look at once whether this node has another address, as the node with a key does not answer."""
        self.client.refresh(key)
        self._poll()

    def _on_timer(self) -> None:
        now = self._loop.time()
        if now >= self._gather_at:
            self._gather_at = now + GATHER_S
            with contextlib.suppress(OSError, ValueError):  # as it was
                self.client.update(self._place.candidates())
        self._poll()
        self._on_change()

    def _poll(self) -> None:
        now = self._loop.time()
        self._send_all(self.client.poll(now))
        if self._timer is not None:
            self._timer.cancel()
        due = min(self.client.next_time(), self._gather_at)
        self._timer = self._loop.call_at(max(due, now + _SHORTEST_S), self._on_timer)

    def _send_all(self, datagrams: Iterable[tuple[Address, bytes]]) -> None:
        for address, data in datagrams:
            self._send(address, data)

    async def _keep_tunnel(self) -> None:
        """Keep a tunnel as long as no server has answered by UDP."""
        await asyncio.sleep(TUNNEL_AFTER_S)
        attempts = 0
        while not self.client.udp_answered:
            try:
                server, tunnel = await self._place.open_tunnel()
            except OSError:
                pass
            else:
                attempts, self._tunnel = 0, tunnel
                main_port = self._place.token.servers[server][1]
                self.client.add_tunnel(server, tunnel.local(main_port), tunnel.local)
                self._poll()
                await tunnel.lost.wait()
            await asyncio.sleep(TUNNEL_RETRY_S[min(attempts, len(TUNNEL_RETRY_S) - 1)])
            attempts += 1
