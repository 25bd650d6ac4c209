"""Meets the other nodes of a job through its meeting servers, and makes peers of them.

The client (softnic/link/reach/client.py) sends and receives by the UDP socket of the NIC's wire, so that the NAT
mapping that servers see is the one that peers use. Its timers are the event loop's. Each node that is met becomes a
peer: its address follows from its overlay number, its public key is the one that it registered with, and it is reached
at the best of its candidates that answers. A node that leaves stays a peer until another one takes its number.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from softnic.ipc.snapshot import MeetingInfo
from softnic.link.forwarding import PeerPath
from softnic.link.reach.candidates import Candidate
from softnic.link.reach.client import MeetingClient
from softnic.link.reach.gather import resolved
from softnic.link.reach.meeting_loop import MeetingLoop, Place, families
from softnic.link.reach.met_node import MetNode
from softnic.link.reach.numbers import number_of, overlay_ip
from softnic.link.reach.own_card import MeetingOptions
from softnic.link.reach.token import TokenError
from softnic.link.secure.identity import key_text
from softnic.link.udp import VxlanLink
from softnic.packet.ethernet import mac_of
from softnic.underlay import Address
from softnicd.config import Config
from softnicd.event_log import EventLog
from softnicd.handlers import address_of
from softnicd.node_relay import NodeRelay

REFRESH_S = 1.0
"""Servers are asked no more often because one node does not answer."""
MOST_SHOWN = 32
"""Nodes that do not answer yet that `info` names."""


class MeetingNic(Protocol):
    """A NIC that gets peers."""

    config: Config
    event_log: EventLog

    def add_peer(
        self, ip: int, address: Address | None, keys: Sequence[str], candidates: Sequence[Candidate]
    ) -> None: ...

    def retry_peer(self, mac: bytes) -> None:
        """Sends again to a peer at once what it has not acknowledged."""


class NicMeeting:
    """The meeting of a NIC, from now until `close`.

    Parameters
    ----------
    nic : MeetingNic
        The NIC, whose configuration has a token and an identity.
    wires : sequence of VxlanLink
        The wire of each queue, the first one first.
    reached : callable
        Returns how the first queue reaches the node that has each MAC.

    Raises
    ------
    OSError
        If the token cannot be used: it has expired, or its servers have no address.
    """

    def __init__(
        self,
        nic: MeetingNic,
        wires: Sequence[VxlanLink],
        reached: Callable[[], Mapping[bytes, PeerPath]],
    ) -> None:
        config, loop = nic.config, asyncio.get_running_loop()
        token, identity = config.token, config.node_identity
        assert token is not None
        assert identity is not None
        wire = wires[0].address
        self._nic, self._reached, self._token = nic, reached, token
        self._offered: dict[bytes, tuple[int, tuple[Candidate, ...]]] = {}
        """The number and the candidates with which each node became a peer."""
        self._said = ""
        self._silent: dict[bytes, float] = {}
        """Nodes that did not answer, by key, until a relay port of them knows this NIC's address again."""
        self._asked: dict[bytes, float] = {}
        """When servers were asked because a node did not answer."""
        try:
            servers = resolved(token.check(time.time()), families(wire))
        except TokenError as error:
            raise OSError(errno.EINVAL, f"meet: {error}") from None
        key = identity.public[0]
        place = Place(token, key, servers, wire)
        number = number_of(config.ip)
        further, serves = config.further_addresses, []
        self._relay: NodeRelay | None = None
        if config.relay:
            self._relay = NodeRelay(token, wire[0], partial(nic.event_log.record_limited, "relay"))
            serves = self._relay.addresses(host for host, _ in (*further, *place.candidates()))
        options = MeetingOptions(further, servers, time.time(), serves=serves)
        client = MeetingClient(token, key, place.candidates(), os.urandom, number, options)
        self._loop = MeetingLoop(client, place, wires[0].send_datagram, self._on_change)
        self._number = number
        for each in wires:
            each.deliver_datagrams(
                partial(_hand_over, loop, self._loop.on_datagram),
                lambda mac: _call_in(loop, partial(self._on_silence, mac)),
            )
        self._loop.start()

    @property
    def _client(self) -> MeetingClient:
        return self._loop.client

    def close(self) -> None:
        """Say goodbye, and send no more."""
        self._loop.leave()
        self._loop.close()
        if self._relay is not None:
            self._relay.close()

    def counters(self) -> dict[str, int]:
        """Return what was received and not used, and what this node relays, by name."""
        relay = {} if self._relay is None else self._relay.counters()
        return {**{f"meeting_{name}": value for name, value in self._client.counters().items()}, **relay}

    def relaying(self, address: Address) -> str:
        """Return the overlay address of the node whose relay is at an address; empty: it is none, or a server's."""
        number = self._client.relaying(address)
        return "" if number is None else overlay_ip(number)

    def info(self) -> MeetingInfo:
        """Return what is known of the job and of the ways to its nodes."""
        client, reached = self._client, self._reached()
        direct = relayed = 0
        waiting = []
        for number, _ in sorted(self._offered.values()):
            ip = overlay_ip(number)
            path = reached.get(_mac(number))
            if path is None or path.since is None:
                waiting.append(ip)
            elif path.relayed:
                relayed += 1
            else:
                direct += 1
        own = client.number
        return MeetingInfo(
            nodes=self._token.nodes,
            known=client.known,
            number=-1 if own is None else own,
            direct=direct,
            relayed=relayed,
            waiting=waiting[:MOST_SHOWN],
            nat=client.nat,
            registered=client.registered,
            tcp=self._loop.is_tunnelled,
            refusal=client.refusal,
        )

    def _on_change(self) -> None:
        client = self._client
        if client.refusal:
            self._say(f"the meeting server refuses this NIC: {client.refusal}")
        number = client.number
        if number is not None and number != self._number:
            self._say(f"another node of the job has {self._nic.config.ip}: start this NIC as {overlay_ip(number)}")
            return
        for node in client.nodes.values():
            self._meet(node)
        for key in [key for key in self._silent if client.is_relay_bound(key)]:
            del self._silent[key]
            if key in self._offered:
                self._nic.retry_peer(_mac(self._offered[key][0]))

    def _on_silence(self, mac: bytes) -> None:
        """A node does not answer: a NAT may have given this host another address, which servers and relays do not
        know."""
        now = time.monotonic()
        key = next((key for key, (number, _) in self._offered.items() if _mac(number) == mac), None)
        if key is not None and now >= self._asked.get(key, -REFRESH_S) + REFRESH_S:
            self._asked[key] = self._silent[key] = now
            self._loop.refresh(key)

    def _meet(self, node: MetNode) -> None:
        if node.number is None or self._offered.get(node.key) == (node.number, node.candidates):
            return
        for key, (number, _) in list(self._offered.items()):
            if number == node.number and key != node.key:
                del self._offered[key]
                self._silent.pop(key, None)
                self._asked.pop(key, None)
        if not node.candidates:
            return
        self._offered[node.key] = node.number, node.candidates
        ip = overlay_ip(node.number)
        try:
            self._nic.add_peer(address_of(ip), None, [key_text(node.key)], node.candidates)
        except OSError as error:
            self._say(f"{ip} of the job is not reached: {error.strerror}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._nic.event_log.record_limited("meetings", text)


def _mac(number: int) -> bytes:
    return mac_of(address_of(overlay_ip(number)))


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    on_datagram: Callable[[Address, bytes], None],
    address: Address,
    data: bytes,
    _now: float,
) -> None:
    """Pass a datagram on from a turn, of any thread, to the event loop, which it wakes."""
    _call_in(loop, partial(on_datagram, address, data))


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Have an event loop, which is woken, call a function."""
    loop.call_soon_threadsafe(call)
