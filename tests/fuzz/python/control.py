"""Packets at a NIC's control socket, with descriptors of all kinds.

Each is answered at once, none by an error of the NIC's own; when the program is gone, nothing is left of what it asked
for: no stream, region, connection or descriptor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from softnic.ipc import control
from softnic.ipc.collectives_info import QueryCollectives
from softnic.ipc.control import NIC_BLOCKS, NIC_CODEC, SOL_NIC
from softnic.ipc.membership import MembershipInfo, NoteMembership
from tests.fuzz.python._daemon import IP, Lab, write

_MOST_PACKETS = 64
_Packets = list[tuple[str, Any]]
_lab: list[Lab] = []


def _descriptors(lab: Lab) -> dict[str, Callable[[], int]]:
    return {
        "s": lab.stream,
        "p": lab.packets,
        "m": lab.region,
        "u": lambda: lab.region(sealed=False),
        "e": lambda: os.eventfd(0),
        "d": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(),
        "t": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach(),
    }


def feed(data: bytes) -> None:
    """Input: lines. A packet each: the kind of descriptor that comes along (another byte: none), then JSON; or `w` and
    bytes: the program that came last writes them; or `c`: it closes its end."""
    if not _lab:
        _lab.append(Lab())
    lab = _lab[0]
    kinds = _descriptors(lab)
    for line in data.split(b"\n")[:_MOST_PACKETS]:
        kind = chr(line[0]) if line else ""
        if kind == "w" and lab.ends:
            write(lab.ends[-1], line[1:])
        elif kind == "c" and lab.ends:
            lab.ends.pop().close()
        else:
            lab.packet(line[1:], kinds[kind]() if kind in kinds else None)
        lab.turn(2)
    lab.clean()


def seeds() -> Iterator[bytes]:
    tcp, ip = socket.IPPROTO_TCP, socket.IPPROTO_IP
    pair: _Packets = [
        ("s", control.Bind("0.0.0.0", 5000)),
        ("-", control.Listen(1, 5)),
        ("s", control.Connect(IP, 5000)),
    ]
    options = [
        control.SetOption(2, ip, socket.IP_TOS, 0x28),
        control.SetOption(2, SOL_NIC, NIC_CODEC, "bfp:7"),
        control.SetOption(2, SOL_NIC, NIC_BLOCKS, 1),
        control.SetOption(2, tcp, socket.TCP_NODELAY, 1),
        control.SetOption(2, tcp, socket.TCP_USER_TIMEOUT, 5000),
        control.SetOption(2, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        control.SetOption(0, SOL_NIC, NIC_CODEC, "auto"),
    ]
    asked = [
        control.QueryOption(2, tcp, socket.TCP_NODELAY),
        control.Resolve("node1.softnic"),
        control.QueryStream(2),
        control.QueryStream(3, True),
        control.QueryStats(),
        control.QueryStats(2),
        QueryCollectives(),
        control.QueryNic(),
    ]
    records: _Packets = [
        ("m", control.Register()),
    ]
    others: _Packets = [
        ("s", control.Capture(0, 1, 96)),
        ("-", control.AddPeer("10.77.0.2", "127.0.0.1", 9)),
        ("-", control.AddPeer("10.77.0.2", candidates=[control.PeerCandidate("127.0.0.1", 9, 1, True)])),
        ("-", control.AddPeerKey("10.77.0.2", "A" * 43 + "=")),
        ("-", control.RevokeKey("A" * 43 + "=")),
        ("-", control.ReplaceIdentity()),
        ("-", NoteMembership(MembershipInfo("job", "7", 0, 2, ["a", "b"], "healing", ["b"], 1, 2))),
        ("-", NoteMembership(None)),
    ]
    elsewhere: _Packets = [
        ("s", control.Connect("10.77.0.2", 80)),
        ("-", control.Unregister(1)),
        ("u", control.Register()),
        ("s", control.Open()),
        ("-", control.Bind("0.0.0.0", 0, stream=1)),
    ]
    group: _Packets = [("p", control.Join(0, [0, 2], [0, 3])), ("p", control.Join(0, [0], [0]))]
    yield _lines([*pair, *(("-", option) for option in options), *(("-", request) for request in asked)])
    yield _lines([*pair, *records]) + b"\nwabc\nc"
    yield _lines([*others, *elsewhere, *pair, *group])
    yield b'-{"type":"QueryNic","version":3}\n-{}\n-[[[[\n-"\xff"\ns{"type":"Bind"}'


def _lines(packets: _Packets) -> bytes:
    return b"\n".join(kind.encode() + control.encode(request) for kind, request in packets)
