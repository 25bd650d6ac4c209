"""Ranks as threads of one process, over kernel sockets whose tagged streams are rounded as NICs would round them."""

from __future__ import annotations

import select
import socket as stdlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from softnic import codecs
from tests.facades.bootstrap import Launch
from tests.facades.collectives import blocks
from tests.facades.comm import TAG, Communicator, CommunicatorState, Transport, raw

T = TypeVar("T")
SOL_NIC, NIC_CODEC, NIC_BLOCKS = 0x534E, 1, 2
BLOCK = 64
TABLE = "bounded:10"
"""The codec of the stand-in's offload table."""


class NicSocket(stdlib.socket):
    """A kernel socket that sends what a NIC's peer would receive: tagged floats as decode(encode(x)).

    Whole blocks leave, the rest waits for more, as NIC_BLOCKS wants it. Takes at most 64 KiB at a time.
    """

    rounded_bytes = 0
    """Of all sockets, since the counter was last set to 0."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tagged = False
        self.codec = TABLE
        self.waiting = b""

    def accept(self) -> tuple[stdlib.socket, Any]:
        accepted, address = super().accept()
        return NicSocket(self.family, self.type, self.proto, fileno=accepted.detach()), address

    def setsockopt(self, level: int, name: int, value: Any, *more: Any) -> None:
        if (level, name) == (SOL_NIC, NIC_CODEC):
            assert not self.waiting, "another codec in the middle of a block"
            self.codec = value.decode()
        elif level != SOL_NIC:
            if (level, name) == (stdlib.IPPROTO_IP, stdlib.IP_TOS):
                self.tagged = value == TAG
            super().setsockopt(level, name, value, *more)

    def send(self, data: Any, *flags: int) -> int:
        if not self.tagged:
            return super().send(data, *flags)
        given = bytes(memoryview(data)[: 1 << 16])
        whole = (len(self.waiting) + len(given)) // BLOCK * BLOCK
        sent = 0
        if whole:
            words = np.frombuffer((self.waiting + given)[:whole], np.float32)
            rounded = raw(codecs.get(self.codec).roundtrip(words))
            sent = super().send(rounded)
            while sent % BLOCK:  # the rest of a block must go too: the next call rounds blocks from their start
                poll = select.poll()
                poll.register(self, select.POLLOUT)
                poll.poll()
                sent += super().send(rounded[sent : sent + BLOCK - sent % BLOCK])
            NicSocket.rounded_bytes += sent
        taken = len(given) if sent == whole else sent - len(self.waiting)
        self.waiting = (self.waiting + given)[sent : len(self.waiting) + taken]
        return taken


MODULE = SimpleNamespace(
    socket=NicSocket,
    SOL_NIC=SOL_NIC,
    NIC_CODEC=NIC_CODEC,
    NIC_BLOCKS=NIC_BLOCKS,
    info=lambda s: SimpleNamespace(codec=s.codec if s.tagged else ""),
)


def listeners(size: int) -> list[stdlib.socket]:
    """Listening sockets at ports that nobody else has."""
    found: list[stdlib.socket] = []
    for _ in range(size):
        listener = NicSocket(stdlib.AF_INET, stdlib.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(3 * size)
        found.append(listener)
    return found


def communicators(size: int, *, timeout_s: float = 20.0, transport: Transport | None = None) -> list[Communicator]:
    """One for each rank; they meet at their first calls, which must be made in different threads."""
    opened = listeners(size)
    transport = transport or Transport(MODULE)
    addresses = tuple(listener.getsockname() for listener in opened)
    return [
        Communicator(CommunicatorState(Launch(rank, addresses, "test", timeout_s), transport, opened[rank]))
        for rank in range(size)
    ]


class Ranks:
    """The outcome of a program that ran on all ranks: by rank, its result or its error."""

    def __init__(
        self,
        size: int,
        program: Callable[[Communicator], Any],
        *,
        free: bool = True,
        transport: Transport | None = None,
    ) -> None:
        self.comms = communicators(size, transport=transport)
        self._transport = transport
        self.results: list[Any] = [None] * size
        self.errors: list[BaseException | None] = [None] * size
        self._program = program
        threads = [threading.Thread(target=self._run, args=(comm,), daemon=True) for comm in self.comms]
        for thread in threads:
            thread.start()
        for rank, thread in enumerate(threads):
            thread.join(60)
            assert not thread.is_alive(), f"rank {rank} hangs"
        if free:
            self.free()

    def _run(self, comm: Communicator) -> None:
        try:
            self.results[comm.rank] = self._program(comm)
        except BaseException as error:
            self.errors[comm.rank] = error
            comm.Free()

    def free(self) -> None:
        for comm in self.comms:
            comm.Free()
        if (close := getattr(self._transport, "close", None)) is not None:
            close()


def run(size: int, program: Callable[[Communicator], T], transport: Transport | None = None) -> list[T]:
    """The results of all ranks; the first error of any, if there is one."""
    ranks = Ranks(size, program, transport=transport)
    for error in ranks.errors:
        if error is not None:
            raise error
    return ranks.results


def failures(
    size: int, program: Callable[[Communicator], Any], transport: Transport | None = None
) -> list[BaseException]:
    """The errors of all ranks; every rank must have one."""
    ranks = Ranks(size, program, transport=transport)
    found = [error for error in ranks.errors if error is not None]
    assert len(found) == size, f"only ranks {[r for r, e in enumerate(ranks.errors) if e]} failed: {found}"
    return found


def gradient(rank: int, count: int, sigma: float = 0.01) -> npt.NDArray[np.float32]:
    """Different on each rank, the same in every run."""
    return (np.random.default_rng(rank + 1).standard_normal(count) * sigma).astype(np.float32)


def by_hand(size: int, count: int, codec: str) -> npt.NDArray[np.float32]:
    """Algorithm 1 with every hop rounded: block b starts at rank b and goes round to rank b-1, its owner."""
    result = np.empty(count, np.float32)
    for index, block in enumerate(blocks("allreduce", "ring", count, size)):
        partial = gradient(index, count)[block]
        for step in range(1, size):
            partial = codecs.get(codec).roundtrip(partial) + gradient((index + step) % size, count)[block]
        result[block] = codecs.get(codec).roundtrip(partial) if size > 1 else partial
    return result
