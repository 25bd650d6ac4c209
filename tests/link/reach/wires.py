"""Links that encrypt, with an address translator between them, on loopback and on the clock of a test."""

from __future__ import annotations

import random
import select
import socket
from contextlib import ExitStack

from softnic.link.secure.channel import EncryptionSettings, SecureChannel, SecureCounters
from softnic.link.secure.identity import NodeIdentity
from softnic.link.secure.key_ring import KeyRing
from softnic.link.secure.keys import public_share
from softnic.link.udp import VxlanLink
from softnic.packet.frames import Frames
from softnic.underlay import Address
from tests.link.doubles import A, B, C, frame
from tests.link.sockets import VNI, loopback, plain_socket

KEY = bytes(range(32))
PRIVATE = {mac: bytes([97 + index]) * 32 for index, mac in enumerate((A, B, C))}
PUBLIC = {mac: public_share(private) for mac, private in PRIVATE.items()}


class Wire:
    """The link of a node, and what it heard."""

    def __init__(self, stack: ExitStack, mac: bytes, *, by_keys: bool, seed: int = 0) -> None:
        self.mac = mac
        known = {other: (PUBLIC[other],) for other in PUBLIC if other != mac}
        ring = KeyRing(KEY, NodeIdentity((PRIVATE[mac],)), peer_keys=known) if by_keys else KeyRing(KEY)
        rng = random.Random(mac[-1] + 10 * seed)
        self.lines: list[str] = []
        self.link = VxlanLink(
            loopback(stack),
            vni=VNI,
            encryption=EncryptionSettings(KEY, mac, rng.randbytes, ring=ring),
            log=self.lines.append,
        )
        stack.callback(self.link.close)
        self.heard: list[bytes] = []

    @property
    def channel(self) -> SecureChannel:
        assert self.link.channel is not None
        return self.link.channel

    @property
    def counted(self) -> SecureCounters:
        return self.channel.counted

    def send(self, to: bytes, text: bytes, now: float) -> bytes:
        """Send a frame."""
        sent = frame(to, self.mac, text)
        self.link.send(Frames.of([sent]), now)
        return sent

    def step(self, now: float) -> None:
        due = self.link.next_time()
        if due is not None and due <= now:
            self.link.advance(now)
        while select.select([self.link], [], [], 0)[0]:
            while (frames := self.link.receive(now)) is not None:
                self.heard += [bytes(each) for each in frames]


class Translator:
    """An address translator: one node sends to `inside`, and others hear it from the address of `outside`.

    What comes to `outside` from anywhere goes to the node, as with a full cone.
    """

    def __init__(self, stack: ExitStack, node: Address, other: Address) -> None:
        self._stack, self.node, self.other = stack, node, other
        self.inside = plain_socket(stack)
        self.inside.setblocking(False)
        self.rebind()
        self.passes = True

    @property
    def address(self) -> Address:
        """Where others hear the node from."""
        name: Address = self.outside.getsockname()
        return name

    def rebind(self) -> None:
        """Take another port. The former one is closed."""
        former = getattr(self, "outside", None)
        self.outside = plain_socket(self._stack)
        self.outside.setblocking(False)
        if former is not None:
            former.close()

    def step(self, now: float) -> None:
        del now
        for source, sink, to in ((self.inside, self.outside, self.other), (self.outside, self.inside, self.node)):
            while select.select([source], [], [], 0)[0]:
                data = source.recv(65536)
                if self.passes:
                    sink.sendto(data, to)


def settle(*parts: Wire | Translator, now: float) -> None:
    """Pass on what is on its way: loopback has delivered when send returns."""
    for _ in range(12):
        for part in parts:
            part.step(now)


def run(*parts: Wire | Translator, start: float, end: float, step: float = 0.05) -> float:
    """Let time pass. Returns the end."""
    now = start
    while now < end:
        now += step
        settle(*parts, now=now)
    return now


def drained(receiver: socket.socket) -> list[bytes]:
    """Return what waits at a socket."""
    found = []
    while select.select([receiver], [], [], 0)[0]:
        found.append(receiver.recv(65536))
    return found
