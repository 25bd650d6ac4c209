"""Links and plain sockets on loopback, closed with the test that opened them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import Random

from softnic.link.udp import VxlanLink
from tests.link.doubles import BROADCAST, Recorder

VNI = 0x123456
LOOPBACK = ("127.0.0.1", 0)
PATIENCE_S = 60.0
"""Loopback delivers at once; only a failing test waits."""


def opened(stack: ExitStack, vni: int = VNI) -> VxlanLink:
    link = VxlanLink(LOOPBACK, vni=vni)
    stack.callback(link.close)
    return link


def plain_socket(stack: ExitStack) -> socket.socket:
    plain = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    plain.bind(LOOPBACK)
    plain.settimeout(PATIENCE_S)
    return plain


class WireRecorder(Recorder):
    """A recorder with a socket to which an emulated link may send itself. It has a path to a node now and then."""

    def __init__(self, stack: ExitStack, random: Random) -> None:
        super().__init__()
        self._random = random
        self._receiver, self._sender = plain_socket(stack), plain_socket(stack)
        self._receiver.setblocking(False)
        self._destination = b""
        self.direct_frames = 0

    def direct_path(self, destination: bytes) -> tuple[int, int, int, int, bool] | None:
        if destination == BROADCAST or self._random.random() < 0.3:
            return None
        self._destination = destination
        address, port = 0x7F000001, self._receiver.getsockname()[1]
        return self._sender.fileno(), address, port, VNI, self._random.random() < 0.5

    def on_direct_sent(self, frames: int, wire_bytes: int) -> None:
        """Record what has arrived: loopback delivers before the sender continues."""
        arrived = [self._receiver.recv(1 << 16) for _ in range(frames)]
        assert {data[:8] for data in arrived} == {b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0"}
        assert {data[8:14] for data in arrived} == {self._destination}
        assert sum(len(data) - 8 for data in arrived) == wire_bytes
        self.sent += [(0.0, data[8:]) for data in arrived]
        self.direct_frames += frames
