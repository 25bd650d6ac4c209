"""Requests of members at a meeting server, with a right MAC and any body.

Each is answered, or counted as dropped; an answer to an address that is not proven is no longer than its request; and
what is remembered is bounded.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Iterator

import msgspec
from msgspec import to_builtins

from softnic.link.reach.cookies import Cookies
from softnic.link.reach.jobs import MOST_CONTACTS
from softnic.link.reach.messages import (
    HEADER_BYTES,
    AllocatePort,
    BindAddress,
    LeaveJob,
    MeetingMessage,
    ProbeNat,
    RegisterNode,
    pack_request,
)
from softnic.link.reach.relay_table import RelayTable
from softnic.link.reach.server import MeetingServer
from softnic.link.reach.token import admits_all
from softnic.underlay import Address
from tests.fuzz.python._input import Input
from tests.link.reach.world import PORT, SECRET, UNIX_TIME, job_token, public_key

_TOKEN = job_token(3)
_GRANT = _TOKEN.grant.pack()
_PORTS = (PORT, PORT + 1, 9500, 9501)
_MAC_BYTES = 16


def feed(data: bytes) -> None:
    """Input: for each request its kind, its place and sender (a byte each), the length of its body (2), and that."""
    given = Input(data)
    table = RelayTable(range(9500, 9504), 1e9, lambda _port: True, lambda _port: None)
    server = MeetingServer(admits_all(SECRET), random.Random(1).randbytes, table, port=PORT)
    now, fed = UNIX_TIME, 0
    while given:
        kind, where = given.number(1), given.number(1)
        head = bytes((0x13, 1, kind, 0)) + _GRANT
        body = given.take(given.number(2) & 0x3FF)
        mac = hmac.digest(_TOKEN.admission, head + body, hashlib.sha256)[:_MAC_BYTES]
        address = _sender(where >> 2)
        proven = {each for job in server._jobs.values() for node in job.nodes.values() for each in node.contacts}
        out = server.on_datagram(_PORTS[where & 3], address, head + mac + body, now)
        fed += 1
        if address not in proven and not server.counted.registers:
            assert sum(len(each) for _, _, each in out) <= HEADER_BYTES + len(body)
        assert all(to == address for _, to, _ in out)
        now += 0.01
        server.poll(now)
    counted = to_builtins(server.counted)
    answers = ("challenges", "registers", "allocations", "bindings", "refused", "nodes_left")
    answered = sum(counted[name] for name in answers)
    dropped = sum(value for name, value in counted.items() if name.startswith("dropped_") and name != "dropped_budget")
    assert answered + dropped <= counted["requests"] == fed
    assert server.nodes <= 3
    assert len(table) <= 3
    assert all(len(node.contacts) <= MOST_CONTACTS for job in server._jobs.values() for node in job.nodes.values())


def _sender(number: int) -> Address:
    return f"192.0.2.{1 + number % 8}", 4789


def seeds() -> Iterator[bytes]:
    cookies = Cookies(random.Random(1).randbytes)  # the server's, as it takes the first random bytes
    pieces = []
    for node in range(3):
        key, address = public_key(node), _sender(node)
        cookie = cookies.make(address, _GRANT, key, UNIX_TIME)
        messages: list[MeetingMessage] = [
            RegisterNode(key=key, sequence=1, cookie=b"", epoch=b"", known=0, card=b"card"),
            RegisterNode(key=key, sequence=2, cookie=cookie, epoch=b"", known=0, card=bytes(200)),
            ProbeNat(key=key, sequence=3, cookie=cookie, how=1),
            AllocatePort(key=key, sequence=4, cookie=cookie),
            BindAddress(key=key, sequence=5, cookie=cookie),
            LeaveJob(key=key, sequence=6, cookie=cookie),
        ]
        pieces += [_piece(each, node, 2 + (node == 0) if each.kind == 4 else 0) for each in messages]
    yield from pieces[:6]
    yield b"".join(pieces[:6])
    yield b"".join(pieces)
    yield b"".join(reversed(pieces))


def _piece(message: MeetingMessage, sender: int, place: int) -> bytes:
    body = pack_request(message, _GRANT, _TOKEN.admission)[HEADER_BYTES:]
    assert msgspec.msgpack.decode(body)
    return bytes((message.kind, sender << 2 | place)) + len(body).to_bytes(2, "little") + body
