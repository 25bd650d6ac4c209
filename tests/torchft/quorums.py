"""Process groups of torchft whose ranks are threads of this process, on one NIC."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from softnic.torchft import ProcessGroupSoftnic

T = TypeVar("T")
LIMIT_S = 60.0


class Quorums:
    """A store, and process groups that meet in it again and again."""

    def __init__(self, members: int, timeout_s: float = 30.0) -> None:
        stores: Any = dist  # torch's stubs leave its stores out
        self.store = stores.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.members = [ProcessGroupSoftnic(timedelta(seconds=timeout_s)) for _ in range(members)]
        self._numbers = itertools.count()
        self._threads = ThreadPoolExecutor(members)

    def address(self) -> str:
        """Return the address of a new quorum."""
        return f"localhost:{self.store.port}/quorum/{next(self._numbers)}"

    def start(
        self, body: Callable[[int, ProcessGroupSoftnic], T], members: Sequence[int] | None = None
    ) -> list[Future[T]]:
        """Run a function of rank and process group on each of these members, in rank order; None: on all."""
        chosen = range(len(self.members)) if members is None else members
        return [self._threads.submit(body, rank, self.members[member]) for rank, member in enumerate(chosen)]

    def run(self, body: Callable[[int, ProcessGroupSoftnic], T], members: Sequence[int] | None = None) -> list[T]:
        return [each.result(LIMIT_S) for each in self.start(body, members)]

    def configure(self, members: Sequence[int] | None = None) -> None:
        """Make a quorum of these members, in rank order; None: of all."""
        size, address = len(self.members if members is None else members), self.address()
        self.run(lambda rank, group: group.configure(address, f"replica{rank}", rank, size), members)

    def close(self) -> None:
        for group in self.members:
            group.shutdown()
        self._threads.shutdown()


def threads_of_groups() -> list[str]:
    """Return the names of the threads that process groups have started and that run."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("softnic-group")]
