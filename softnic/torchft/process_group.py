"""The process group of torchft whose ranks change from one quorum to the next.

A quorum has a group of its own, called an epoch here: a communicator with connections that belong to it alone. Its
ranks meet by the store of the quorum and agree on a random name, which their Hello carries: no process of an earlier
epoch is accepted (softnic/comm/bootstrap/greeting.py). The NIC of the host, and `compress`, outlive epochs.
"""

# torchft's signatures have no types that mypy reads.
# mypy: disable-error-code="misc, no-untyped-call"

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from softnic.torch import connected
from softnic.torch.backend import SoftnicGroup
from softnic.torch.message_rounds import Begin
from softnic.torch.reconfigurable import Reconfigurable
from softnic.torch.stores import EpochStores
from softnic.torchft.membership import MembershipNotes, member_key, read_names, roll_call
from softnic.torchft.releases import FURTHER_CALLS

JOIN_S = 3.0
"""A lighthouse tells all members of a quorum at once: one that has not come to it by then has died since."""
PATIENCE_S = 0.5
"""How long those that have come wait for the others, at first: a member that asks for a quorum and dies belongs to it.
Twice as long after each quorum that was given up, for the others may be slow."""


@dataclass
class MethodCall:
    """A sum by the rounds of a gradient method."""

    begin: Begin
    taken: bool = False
    """Whether a ProcessGroupSoftnic makes it."""


_summed: ContextVar[MethodCall | None] = ContextVar("_summed", default=None)


@contextmanager
def summed_by(begin: Begin) -> Iterator[MethodCall]:
    """Have the all-reduce that this thread calls within, by way of a Manager, sum by the rounds that `begin` starts."""
    call = MethodCall(begin)
    token = _summed.set(call)
    try:
        yield call
    finally:
        _summed.reset(token)


class ProcessGroupSoftnic(Reconfigurable, ProcessGroupWrapper):
    """A process group for `torchft.Manager`, over the NIC of this host, for CPU and CUDA tensors.

    Parameters
    ----------
    timeout : timedelta
        Time limit of `configure`, and of calls that have none of their own.
    job : str
        Name under which `softnic top` and `softnic stat` show this member.

    Notes
    -----
    The first error of an epoch ends it on all its ranks: calls in progress and later ones fail, until `configure`.
    ``softnic.torch.compress(pg, "rht:4")`` compresses the sums of all epochs; all ranks need the same settings.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), job: str = "torchft") -> None:
        ProcessGroupWrapper.__init__(self, timeout)
        Reconfigurable.__init__(self)
        self._error: Exception | None = None
        """Of the present epoch."""
        self._has_met = False
        """It has had an epoch."""
        self._patience_s = PATIENCE_S
        self._aborts = 0
        self._lock = threading.Lock()
        self._stores = EpochStores()
        self.notes = MembershipNotes(job)
        """What this member reports to its NIC."""

    def getBackendName(self) -> str:
        return "torchft-softnic"

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: int | None = None,
        *given: Any,
        **more: Any,
    ) -> None:
        """End the present epoch on this rank, at once, and connect the ranks of the next one.

        Parameters
        ----------
        store_addr : str
            HOST:PORT/PREFIX of a store that all ranks reach.
        replica_id : str
            Name of this replica, for torchft's log of errors.
        rank, world_size : int
            The rank of this process, and the number of ranks; a single one needs no connection.
        quorum_id : int, optional
            Number of the quorum that a lighthouse has made. Its members are there at once: one that has not come half a
            second after the others is an error, so that the next quorum is without it. To connect may take 3 s, and in
            the first quorum of a process the timeout.
        *given, **more
            What later releases of torchft pass; not used.

        Raises
        ------
        DistBackendError
            If a rank does not join within the timeout or fails while it joins, if the NIC fails, or if another thread
            has called `abort`. `configure` may be called again.
        """
        del given, more
        self._replica_id, self._rank = replica_id, rank
        self._end("left for the next quorum")
        with self._lock:
            self._error, aborts = None, self._aborts
        is_quorum = bool(quorum_id)
        limit = min(self._timeout, timedelta(seconds=JOIN_S)) if self._has_met and is_quorum else self._timeout
        try:
            store = self._stores.open(store_addr, limit)
            store.set(member_key(rank), replica_id)
            if is_quorum:
                self._call_the_roll(store, world_size)
            comm = connected(store, rank, world_size, limit, "configure")
            group = SoftnicGroup(comm, replica_id, self._timeout, store)
        except Exception as error:
            self._error = error
            raise
        with self._lock:
            self.become(group)
            self._has_met = True
            aborted = self._aborts != aborts
        epoch = store_addr.partition("/")[2] if quorum_id is None else str(quorum_id)
        self.notes.begin(epoch, rank, read_names(store, world_size))
        if aborted:
            group.abort()
            raise dist.DistBackendError(f"configure: {group.failure()}")

    def _call_the_roll(self, store: Any, size: int) -> None:
        """Wait for all members of a quorum. Raises DistBackendError for those that do not come."""
        missing = roll_call(store, size, JOIN_S, self._patience_s)
        if missing:
            self._patience_s = min(2 * self._patience_s, JOIN_S)
            raise dist.DistBackendError(f"configure: ranks {missing} of this quorum have not come, so they have died")
        self._patience_s = PATIENCE_S

    def allreduce(self, tensors: Any, opts: Any) -> Any:
        """Reduce tensors; within `summed_by`, sum one by the rounds of a gradient method."""
        call = _summed.get()
        if call is None:
            return super().allreduce(tensors, opts)
        call.taken = True
        (tensor,) = tensors
        return self.parent.sum_by_rounds(tensor, call.begin)

    def abort(self, errored: bool = True) -> None:
        """End the epoch on all ranks at once, from any thread. Calls in progress and later ones fail."""
        super().abort(errored)
        with self._lock:
            self._aborts += 1
            group = self._present
        if group is not None:
            group.abort()

    def shutdown(self) -> None:
        """End the epoch on this rank at once, and release what it has used. `configure` may be called again."""
        self._end("shut its process group down")
        self.notes.close()

    def _end(self, why: str) -> None:
        with self._lock:
            group = self._present
            self.become(None)
        if group is not None:
            group.quit(why)

    def errored(self) -> Exception | None:
        """Return the first error of the epoch, on this rank or another; None: there was none."""
        group = self._present
        if self._error is None and group is not None and (failure := group.failure()):
            self._error = dist.DistBackendError(failure)
        return self._error

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        if self._present is not None:
            self._present.set_timeout(timeout)

    @property
    def parent(self) -> SoftnicGroup:
        """The group of the present epoch. Raises DistBackendError if there is none."""
        group = self._present
        if group is None:
            reason = f": {self._error}" if self._error is not None else ""
            raise dist.DistBackendError(f"process group not initialized{reason}")
        return group

    def __repr__(self) -> str:
        group = self._present
        return f"{type(self).__name__}({'' if group is None else f'rank {group.rank()} of {group.size()}'})"


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: ProcessGroupSoftnic, *args: Any, **options: Any) -> Any:
        return getattr(self.parent, name)(*args, **options)

    call.__name__ = name
    return call


for _name in FURTHER_CALLS:
    setattr(ProcessGroupSoftnic, _name, _passed_on(_name))
