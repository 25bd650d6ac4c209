"""Links and plain sockets on loopback, closed with the test that opened them."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from tests.facades.link import VxlanLink

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
