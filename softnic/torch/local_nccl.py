"""Shares of sums among the ranks of a host by NCCL, which each has a GPU of its own.

There are two process groups that torch.distributed does not know, one for each kind of exchange. Ranks call each of
them in the order of their sums, which is the same on all.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from softnic.comm.errors import CommError
from softnic.torch.encoded import Steps
from softnic.torch.exec_context import ExecContext
from softnic.torch_private import nccl_backend, unlisted_group

_NO_LIMIT = timedelta(days=1)
"""Of NCCL's calls: the process group of softnic has time limits, and ends these with it."""
_NICS_FIRST_S = 2.0
"""After an error, in which NICs report a rank that has ended by its number."""
_scatter: Callable[..., Any] = dist.all_to_all_single
_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""The second name is that of releases before 2.13."""


class NcclShares:
    """A ShareExchange (local.py) of these ranks. `scatters` and `gathers` are process groups of them."""

    numbers = 1

    def __init__(self, ranks: Sequence[int], scatters: Any, gathers: Any) -> None:
        self._ranks = ranks
        self._scatters, self._gathers = scatters, gathers
        self._waiting: deque[int] = deque()
        """The sums that have not begun to gather, in their order."""
        self._running: list[Any] = []
        """Works in progress."""

    def scatter(self, context: ExecContext, number: int, source: torch.Tensor, target: torch.Tensor) -> Steps:
        self._waiting.append(number)
        yield from self._called(context, _scatter, self._scatters, source, target)

    def gather(self, context: ExecContext, number: int, source: torch.Tensor, target: torch.Tensor) -> Steps:
        yield lambda: self._waiting[0] == number
        self._waiting.popleft()
        yield from self._called(context, _gather, self._gathers, source, target)

    def _called(
        self, context: ExecContext, call: Callable[..., Any], group: Any, source: torch.Tensor, target: torch.Tensor
    ) -> Steps:
        streams = context.streams(source.device)
        try:
            with streams.kernels():
                work = call(target, source, group=group, async_op=True)
            self._running.append(work)
            context.watched([(ended := _Ended(work))])
            yield ended.query
            with streams.kernels():
                work.wait()
            self._running.remove(work)
        except RuntimeError as error:
            until = time.monotonic() + _NICS_FIRST_S
            yield lambda: time.monotonic() > until
            ranks = ", ".join(map(str, self._ranks))
            raise CommError(f"ranks {ranks}, of one host, cannot exchange shares: {error}") from error

    def close(self) -> None:
        """End the process groups, and what they have in progress after an error."""
        for group in (self._scatters, self._gathers):
            with suppress(RuntimeError):  # of the other ranks that end theirs
                if self._running:
                    group.abort()
                else:
                    group.shutdown()
        self._running.clear()


class _Ended:
    """The end of a Work of torch's, as an Event."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def query(self) -> bool:
        return bool(self._work.is_completed())

    def synchronize(self) -> None:
        self._work.wait()


def connect(
    store: Any, ranks: Sequence[int], place: int, name: str, device: torch.device, limit_s: float
) -> NcclShares:
    """Connect the ranks of this host, of which this one has a place. All of them call this. Raises CommError.

    `name` is fresh, and the same on all of them.
    """
    made: list[NcclShares] = []
    errors: list[Exception] = []

    def group_for(call: Callable[..., Any], elements: int) -> Any:
        own = PrefixStore(f"softnic/local/{name}/{call.__name__}", store)
        group = unlisted_group(nccl_backend(own, place, len(ranks), _NO_LIMIT), own, device)
        source, target = (torch.zeros(count, device=device) for count in (elements, len(ranks)))
        call(target, source, group=group)  # the first one connects the ranks, and waits for them
        return group

    def make() -> None:
        try:
            made.append(NcclShares(ranks, group_for(_scatter, len(ranks)), group_for(_gather, 1)))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=make, name="softnic-local", daemon=True)  # nothing else limits that wait
    thread.start()
    thread.join(limit_s)
    if not made:
        why = errors[0] if errors else f"not within {limit_s:g} s"
        raise CommError(f"ranks {', '.join(map(str, ranks))}, of one host, cannot connect: {why}")
    return made[0]
