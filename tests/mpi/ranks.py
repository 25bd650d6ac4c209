"""Ranks as threads of one process, with collective engines over kernel sockets (engine_nics.py) for NICs."""

from __future__ import annotations

import socket as stdlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.collectives.schedule import blocks
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.transport import Transport
from softnic.mpi.communicator import Communicator
from softnic.mpi.state import CommunicatorState
from tests.comm.engine_nics import EngineNics

T = TypeVar("T")


def listeners(size: int, backlog: int = 0) -> list[stdlib.socket]:
    """Listening sockets at ports that nobody else has. A connection beyond the backlog waits for a second, or more."""
    found: list[stdlib.socket] = []
    for _ in range(size):
        listener = stdlib.socket(stdlib.AF_INET, stdlib.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog or 3 * size)
        found.append(listener)
    return found


def communicators(size: int, *, timeout_s: float = 20.0, transport: Transport | None = None) -> list[Communicator]:
    """One for each rank; they meet at their first calls, which must be made in different threads."""
    opened = listeners(size)
    transport = transport or EngineNics()
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
        self._transport = transport or EngineNics()
        self.comms = communicators(size, transport=self._transport)
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
