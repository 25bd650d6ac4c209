"""What mpi4py's own modules (`mpi4py.util.pkl5`) keep with a communicator: locks by name, and a duplicate for messages.

They ask for it by private names of `mpi4py.MPI`. It goes with the communicator, as the value of an attribute.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable
from typing import Any

from softnic.mpi.communicator import Comm, Communicator, Intercomm

_TAGS = 1 << 30
_lock = threading.Lock()


class _Context:
    """The locks of one communicator, its duplicate, and the tags of the messages on that."""

    def __init__(self) -> None:
        self.locks: dict[Hashable, threading.Lock] = {}
        self.duplicate: Any = None
        self.group: Communicator | None = None
        """The ranks of this one's group, of two."""
        self.tags = itertools.cycle(range(_TAGS))


def _released(_comm: Any, _key: int, context: _Context) -> None:
    for made in (context.duplicate, context.group):
        if made:
            made.Free()


_KEY = Communicator.Create_keyval(delete_fn=_released)


def _context(comm: Comm) -> _Context:
    with _lock:
        found = comm.Get_attr(_KEY)
        if found is None:
            found = _Context()
            comm.Set_attr(_KEY, found)
    context: _Context = found
    return context


def _comm_lock_table(comm: Communicator) -> dict[Hashable, threading.Lock]:
    """Return the locks of a communicator by name."""
    return _context(comm).locks


def _comm_lock(comm: Communicator, key: Hashable = None) -> threading.Lock:
    """Return the lock of a communicator with this name."""
    return _comm_lock_table(comm).setdefault(key, threading.Lock())


def _commctx_intra(comm: Communicator) -> tuple[Communicator, int]:
    """Return a duplicate of a communicator and the next tag on it. All ranks call this."""
    context = _context(comm)
    if context.duplicate is None:
        context.duplicate = Communicator(comm).Dup()
    duplicate: Communicator = context.duplicate
    return duplicate, next(context.tags)


def _commctx_inter(comm: Intercomm) -> tuple[Intercomm, int, Communicator, bool]:
    """Return a duplicate of a communicator of two groups, the next tag on it, and this rank's group.

    The group is a communicator; and whether it is the first one. All ranks call this.
    """
    context, groups = _context(comm), comm._groups()
    if context.duplicate is None:
        context.duplicate = Intercomm(comm).Dup()
        context.group = comm._both().Split(groups.first_local)
    assert context.group is not None
    return context.duplicate, next(context.tags), context.group, groups.first_local == 0
