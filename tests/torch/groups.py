"""Process groups whose ranks are threads of one process, over fake NICs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from softnic.mpi.communicator import Communicator
from softnic.torch.backend import SoftnicGroup
from tests.mpi.groups import FakeNics
from tests.mpi.ranks import communicators

T = TypeVar("T")


def outcomes(size: int, program: Callable[[SoftnicGroup], Any], timeout_s: float = 30.0) -> list[Any]:
    """Run a function on each rank. Returns what it returned or raised, by rank."""
    nics = FakeNics()
    found: list[Any] = [None] * size
    groups: list[SoftnicGroup] = []
    met = threading.Barrier(size)

    def body(comm: Communicator) -> None:
        comm.Init()
        met.wait(60)
        groups.append(group := SoftnicGroup(comm, "test", timedelta(seconds=timeout_s)))
        try:
            found[comm.rank] = program(group)
        except BaseException as error:  # pytest's own are not Exceptions
            found[comm.rank] = error

    ranks = communicators(size, transport=nics)
    threads = [threading.Thread(target=body, args=(comm,), daemon=True) for comm in ranks]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(60)
        assert not thread.is_alive(), f"rank {rank} hangs"
    for group in groups:
        group.shutdown()
    nics.close()
    return found


def run(size: int, program: Callable[[SoftnicGroup], T]) -> list[T]:
    """Run a function on each rank. Returns the results, or raises the first error."""
    found = outcomes(size, program)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found
