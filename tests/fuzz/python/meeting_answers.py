"""What a meeting server that has the job's admission says to a node, with any body.

A node believes no card that another one did not seal, asks no more than it may, and what it remembers is bounded.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Iterator

import msgspec

from softnic.link.reach.card import Card, CardAddress, CardSeal, RelayPort
from softnic.link.reach.client import MOST_PENDING, MeetingClient
from softnic.link.reach.messages import (
    AddressBound,
    AddressChallenge,
    JobEntry,
    JobState,
    MeetingMessage,
    NatProbed,
    PortAllocated,
    RequestRefused,
    pack_address,
)
from softnic.link.reach.own_card import MeetingOptions
from softnic.underlay import Address
from tests.fuzz.python._input import Input
from tests.link.reach.world import SERVERS, job_token, public_key

_TOKEN = job_token(3, servers=2)
_GRANT = _TOKEN.grant.pack()
_OWN: Address = ("203.0.113.1", 4789)
_STARTED = 1e-6
"""So that sequences are small numbers, which inputs can guess."""
_KEYS = {public_key(1), public_key(2)}


def feed(data: bytes) -> None:
    """Input: for each datagram its kind and its sender (a byte each), the length of its body (2), and that."""
    given = Input(data)
    options = MeetingOptions(started=_STARTED)
    client = MeetingClient(_TOKEN, public_key(0), [_OWN], random.Random(1).randbytes, None, options)
    now, sent, fed = 100.0, len(client.poll(100.0)), 0
    while given:
        kind, sender = given.number(1), given.number(1)
        head = bytes((0x13, 1, kind, 0)) + _GRANT
        body = given.take(given.number(2) & 0x7FF)
        mac = hmac.digest(_TOKEN.admission, head + body, hashlib.sha256)[:16]
        host, port = SERVERS[sender & 1]
        client.on_datagram((host, port + (sender >> 1)), head + mac + body, now)
        fed += 1
        now += 0.01
        if client.next_time() <= now:
            sent += len(client.poll(now))
        assert set(client.nodes) <= _KEYS
        assert client.nat
    counted = client.counters()
    assert counted["received"] == fed
    assert sum(counted[name] for name in ("dropped_malformed", "dropped_forged", "dropped_unasked")) <= fed
    assert len(client._asked) <= MOST_PENDING
    assert sent <= 20 + 12 * fed


def seeds() -> Iterator[bytes]:
    seal = CardSeal(_TOKEN)
    entries = []
    for node in (1, 2):
        card = Card(node, None, (CardAddress("local", f"203.0.113.{node + 1}", 4789),), (RelayPort(0, 9500 + node),))
        key = public_key(node)
        entries.append(JobEntry(key, seal.seal(card, key, random.Random(node).randbytes), [pack_address(_OWN)]))
    messages = [
        AddressChallenge(echo=1, cookie=bytes(16), seen=pack_address(_OWN)),
        *(_state(echo, entries[:1], 1) for echo in range(2, 8)),
        *(_state(echo, entries, 2) for echo in range(0, 8, 4)),
        *(PortAllocated(echo=echo, port=9500) for echo in range(2, 12)),
        *(NatProbed(echo=echo, how=1, seen=pack_address(_OWN)) for echo in range(2, 12)),
        *(AddressBound(echo=echo) for echo in range(2, 16)),
        RequestRefused(echo=3, reason=1),
    ]
    pieces = [_piece(each, 0) for each in messages]
    yield from pieces[:2]
    yield b"".join(pieces)
    yield b"".join(_piece(each, 1) for each in messages)


def _state(echo: int, entries: list[JobEntry], latest: int) -> JobState:
    return JobState(
        echo=echo,
        cookie=bytes(16),
        seen=pack_address(_OWN),
        epoch=bytes(8),
        since=0,
        until=latest,
        latest=latest,
        entries=entries,
    )


def _piece(message: MeetingMessage, sender: int) -> bytes:
    body = msgspec.msgpack.encode(message)
    return bytes((message.kind, sender)) + len(body).to_bytes(2, "little") + body
