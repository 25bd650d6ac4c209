"""Registers a node of a job by a UDP socket of its own, and returns its overlay number: the NIC needs that to start.

The NIC then takes over the socket's port, and with it the NAT's mapping, which other nodes know already.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from softnic import underlay
from softnic.link.reach.client import MeetingClient
from softnic.link.reach.gather import resolved
from softnic.link.reach.meeting_loop import MeetingLoop, Place, families
from softnic.link.reach.own_card import MeetingOptions
from softnic.link.reach.token import Token
from softnic.link.sockets import open_socket
from softnic.underlay import Address

LOOK_S = 0.02
"""Between looks at what is known."""
_MOST_DATAGRAM = 0xFFFF


@dataclass(frozen=True, slots=True)
class Registration:
    """What a node knows of its job so far."""

    known: int
    """Nodes that are known, this one included."""
    number: int | None
    """This node's overlay number, once all are known."""
    wire: Address
    """The address that the socket was bound to."""
    registered: bool
    """Whether a server answers."""
    nat: str
    """The kind of NAT that the node is behind."""
    is_tunnelled: bool
    """Whether servers are reached through TCP."""
    refusal: str
    """Why all servers that answer refuse the node; empty: they do not."""


async def register(
    token: Token,
    public_key: bytes,
    bind: Address,
    *,
    number: int | None,
    timeout_s: float,
    on_progress: Callable[[Registration], None],
) -> Registration:
    """Register, and return what is known when all nodes of the job are, or after the timeout.

    Parameters
    ----------
    token : Token
        The job.
    public_key : bytes
        32 bytes by which other nodes know this one.
    bind : tuple of str and int
        What the NIC is to be bound to; port 0: any, which is then in `wire`.
    number : int or None
        The overlay number that the node claims.
    timeout_s : float
        Seconds.
    on_progress : callable
        Takes what is known, whenever it changes.

    Raises
    ------
    OSError
        If the address cannot be bound.
    TokenError
        If the token has expired, or its servers have no address.
    """
    token.check(time.time())
    with contextlib.closing(open_socket(bind)) as opened:
        wire = underlay.of_socket(opened.getsockname())
        place = Place(token, public_key, resolved(token, families(wire)), wire)
        options = MeetingOptions(servers=place.servers, started=time.time(), relay=False)
        client = MeetingClient(token, public_key, place.candidates(), os.urandom, number, options)
        meeting = MeetingLoop(client, place, _sender(opened), lambda: None)
        loop = asyncio.get_running_loop()
        loop.add_reader(opened.fileno(), _read, opened, meeting)
        meeting.start()
        try:
            return await _until_complete(meeting, wire, timeout_s, on_progress)
        finally:
            loop.remove_reader(opened.fileno())
            meeting.close()


async def _until_complete(
    meeting: MeetingLoop, wire: Address, timeout_s: float, on_progress: Callable[[Registration], None]
) -> Registration:
    client = meeting.client
    until = time.monotonic() + timeout_s
    shown: Registration | None = None
    while True:
        now = Registration(
            client.known, client.number, wire, client.registered, client.nat, meeting.is_tunnelled, client.refusal
        )
        if now != shown:
            on_progress(now)
            shown = now
        if (now.number is not None and now.registered) or time.monotonic() >= until:
            return now
        await asyncio.sleep(LOOK_S)


def _sender(opened: socket.socket) -> Callable[[Address, bytes], None]:
    def send(address: Address, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it is repeated
            opened.sendto(data, underlay.socket_address(address, opened.family))

    return send


def _read(opened: socket.socket, meeting: MeetingLoop) -> None:
    with contextlib.suppress(OSError):
        while True:
            data, source = opened.recvfrom(_MOST_DATAGRAM)
            if data[:1] == b"\x13":
                meeting.on_datagram(underlay.of_socket(source), data)
