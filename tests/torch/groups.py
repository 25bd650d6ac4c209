"""Process groups of several ranks in one process: each rank a thread, over NICs that a thread of the test plays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from softnic.torch.backend import SoftnicGroup
from tests.comm.groups import FakeNics
from tests.comm.ranks import communicators

T = TypeVar("T")


def outcomes(size: int, program: Callable[[SoftnicGroup], Any], timeout_s: float = 30.0) -> list[Any]:
    """By rank, what the program returned or raised."""
    nics = FakeNics()
    found: list[Any] = [None] * size

    def body(rank: int, group: SoftnicGroup) -> None:
        try:
            found[rank] = program(group)
        except Exception as error:
            found[rank] = error

    timeout = timedelta(seconds=timeout_s)
    groups = [SoftnicGroup(comm, "test", timeout) for comm in communicators(size, transport=nics)]
    threads = [threading.Thread(target=body, args=pair, daemon=True) for pair in enumerate(groups)]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(40.0)
        assert not thread.is_alive(), f"rank {rank} hangs"
    for group in groups:
        group.shutdown()
    nics.close()
    return found


def run(size: int, program: Callable[[SoftnicGroup], T]) -> list[T]:
    """The results of all ranks; the first error of any, if there is one."""
    found = outcomes(size, program)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found
