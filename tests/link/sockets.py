"""Links and plain sockets on loopback, closed with the test that opened them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import Random

import pytest

from softnic import underlay
from softnic._native import ffi
from softnic.link.base import UdpPath
from softnic.link.endpoint import packed
from softnic.link.udp import VxlanLink
from softnic.underlay import Address
from tests import needs
from tests.link.doubles import BROADCAST, Recorder

VNI = 0x123456
LOOPBACK = ("127.0.0.1", 0)
PATIENCE_S = 60.0
"""Loopback delivers at once; only a failing test waits."""


BOTH_FAMILIES = ["127.0.0.1", pytest.param("::1", marks=needs.ipv6)]


class HostStack(ExitStack):
    """What a test opens, at one address of loopback."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host


def host_of(stack: ExitStack) -> str:
    """Return the address at which a test opens sockets."""
    return stack.host if isinstance(stack, HostStack) else LOOPBACK[0]


def loopback(stack: ExitStack, port: int = 0) -> Address:
    """Return an address of loopback, of the family that a test is about."""
    return host_of(stack), port


def opened(stack: ExitStack, vni: int = VNI) -> VxlanLink:
    link = VxlanLink(loopback(stack), vni=vni)
    stack.callback(link.close)
    return link


class PlainSocket(socket.socket):
    """A socket of UDP, whose names are pairs with IPv6, too."""

    def getsockname(self) -> Address:
        return underlay.of_socket(super().getsockname())


def plain_socket(stack: ExitStack, host: str | None = None, port: int = 0) -> socket.socket:
    host = host_of(stack) if host is None else host
    plain = stack.enter_context(PlainSocket(underlay.family(host), socket.SOCK_DGRAM))
    plain.bind((host, port))
    plain.settimeout(PATIENCE_S)
    return plain


def endpoint(address: Address) -> object:
    """Return an address as C has it for sockets of its own family."""
    return ffi.from_buffer("sn_endpoint[]", packed(address, underlay.family(address[0])))


class WireRecorder(Recorder):
    """A recorder with a socket to which an emulated link may send itself. It has a path to a node now and then."""

    def __init__(self, stack: ExitStack, random: Random) -> None:
        super().__init__()
        self._random = random
        self._receiver, self._sender = plain_socket(stack), plain_socket(stack)
        self._receiver.setblocking(False)
        self._destination = b""
        self.direct_frames = 0

    def direct_path(self, destination: bytes) -> UdpPath | None:
        if destination == BROADCAST or self._random.random() < 0.3:
            return None
        self._destination = destination
        to = endpoint(self._receiver.getsockname())
        return UdpPath(self._sender.fileno(), to, VNI, self._random.random() < 0.5)

    def on_direct_sent(self, frames: int, wire_bytes: int) -> None:
        """Record what has arrived: loopback delivers before the sender continues."""
        arrived = [self._receiver.recv(1 << 16) for _ in range(frames)]
        assert {data[:8] for data in arrived} == {b"\x08\0\0\0" + VNI.to_bytes(3, "big") + b"\0"}
        assert {data[8:14] for data in arrived} == {self._destination}
        assert sum(len(data) - 8 for data in arrived) == wire_bytes
        self.sent += [(0.0, data[8:]) for data in arrived]
        self.direct_frames += frames
