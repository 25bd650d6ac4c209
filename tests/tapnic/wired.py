"""Two kernels' NICs as their daemons run them, over real sockets, on a clock of the test."""

from __future__ import annotations

import random
import select
from collections import Counter
from contextlib import ExitStack
from functools import partial

from softnic.capture.hook import CaptureHook
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.secure.channel import EncryptionSettings
from softnic.link.udp import VxlanLink
from softnic.packet.ethernet import mac_of
from softnicd.event_log import EventLog
from softnicd.link_setup import QueueLink
from softnicd.tap import KernelTurn
from tests.nic.asked import count_calls
from tests.tapnic.simulated import ADDRESSES, Kernel, Pair

KEY = bytes(range(32))


class WiredPair(Pair):
    """`direct`: C itself reads and writes the wire; else the link in Python does."""

    def __init__(
        self,
        stack: ExitStack,
        *,
        codec: str = "bounded:10",
        spec: EmulationSpec | None = None,
        sealed: bool = False,
        direct: bool = True,
    ) -> None:
        rng = random.Random(1)
        sealing = [
            EncryptionSettings(KEY, mac_of(ip), random_bytes=rng.randbytes) if sealed else None for ip in ADDRESSES
        ]
        self.wires = [VxlanLink(("127.0.0.1", 0), {}, encryption=settings) for settings in sealing]
        self.now = 1.0
        self.asked: Counter[str] = Counter()
        made = []
        for index, wire in enumerate(self.wires):
            stack.callback(wire.close)
            wire.add_peer(mac_of(ADDRESSES[1 - index]), self.wires[1 - index].address)
            made.append(self._kernel(stack, index, codec, spec, direct))
        self.left, self.right = made

    def _kernel(self, stack: ExitStack, index: int, codec: str, spec: EmulationSpec | None, direct: bool) -> Kernel:
        wire, hook = self.wires[index], CaptureHook(ADDRESSES[index])
        emulated = None if spec is None else EmulatedLink(wire, spec, seed=index)
        epoll = stack.enter_context(select.epoll())

        def make_turn(*parts: object) -> KernelTurn:
            link, capture = parts[3:]
            queue_link = QueueLink(wire, emulated, link, capture)  # type: ignore[arg-type]
            made = partial(KernelTurn, queue_link=queue_link, epoll=epoll.fileno(), log=EventLog())
            turn = made(*parts)  # type: ignore[arg-type]
            turn._direct = direct
            return turn

        return Kernel(stack, index, codec, emulated or wire, hook, make_turn)

    def pump(self, now: float = 0.0, turns: int = 4) -> None:  # noqa: ARG002
        """Take some turns of both, a millisecond apart."""
        for _ in range(turns):
            self.now += 0.001
            for kernel in (self.left, self.right):
                turn = kernel.node.turn
                assert isinstance(turn, KernelTurn)
                turn.c.wire_readable, kernel.node.tap.readable = True, True
                turn.step(self.now)

    def count_calls(self, *names: str) -> None:
        """From now on, count what C asks of Python."""
        for kernel in (self.left, self.right):
            count_calls(kernel.node.turn, self.asked, *names)

    def counters(self) -> list[dict[str, int]]:
        for kernel in (self.left, self.right):
            turn = kernel.node.turn
            assert isinstance(turn, KernelTurn)
            turn.count()
        return [kernel.node.counters() for kernel in (self.left, self.right)]
