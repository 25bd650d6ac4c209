"""What mpi4py's own modules (`mpi4py.util.pkl5`) keep with a communicator: locks by name, and a duplicate for messages.

They ask for it by private names of `mpi4py.MPI`. It goes with the communicator, as the value of an attribute.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable
from typing import Any

from softnic.comm.communicator import Communicator
from softnic.comm.unsupported import PROCESSES, refused

_TAGS = 1 << 30
_lock = threading.Lock()


class _Context:
    """The locks of one communicator, its duplicate, and the tags of the messages on that."""

    def __init__(self) -> None:
        self.locks: dict[Hashable, threading.Lock] = {}
        self.duplicate: Communicator | None = None
        self.tags = itertools.cycle(range(_TAGS))


def _released(_comm: Any, _key: int, context: _Context) -> None:
    if context.duplicate is not None and context.duplicate:
        context.duplicate.Free()


_KEY = Communicator.Create_keyval(delete_fn=_released)


def _context(comm: Communicator) -> _Context:
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
    return context.duplicate, next(context.tags)


_commctx_inter = refused("_commctx_inter", PROCESSES)
