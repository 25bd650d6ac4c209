"""What a process holds of its NICs: a connection to each, and the streams behind its descriptors.

A stream is known by its descriptor's inode, which survives dup, fork and what ssl does (it takes the descriptor
out of one socket object and puts it into another).
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import weakref
from dataclasses import dataclass, field

from softnic.client import Client


@dataclass(slots=True, weakref_slot=True, eq=False)
class State:
    """What all descriptors of one stream share: those made by dup, and those that a fork inherits."""

    path: str
    """Of the NIC's control socket."""
    stream: int = 0
    """The NIC's number for it; 0 until the NIC knows it."""
    nic_end: int = -1
    """The NIC's end of the pair, until the NIC has it."""
    local: tuple[str, int] = ("0.0.0.0", 0)
    target: tuple[str, int] | None = None
    """Where a connect that is under way goes."""
    peer: tuple[str, int] | None = None
    bound: bool = False
    listening: bool = False
    send_buffer: int = 0
    """SO_SNDBUF as the program wants it; 0: as the control protocol has it."""
    spent: bool = False
    """The pair has been used up by a connect that failed."""
    ended: bool = False
    """The peer's end of stream was seen, with no error behind it."""
    options: dict[tuple[int, int], int | str] = field(default_factory=dict)

    def __del__(self) -> None:
        if self.nic_end >= 0:
            os.close(self.nic_end)


_clients: dict[str, Client] = {}
_clients_lock = threading.Lock()
live: weakref.WeakValueDictionary[int, State] = weakref.WeakValueDictionary()
"""By the inode of the descriptor, which dup and fork keep."""
_detached: dict[int, tuple[int, State]] = {}
"""By inode, the descriptors that left their object (ssl does that): kept until the descriptor is closed."""


def _forget_clients() -> None:
    global _clients_lock
    _clients_lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_clients)


def client(path: str) -> Client:
    """This process's connection to the NIC."""
    with _clients_lock:
        known = _clients.get(path)
        if known is None:
            known = _clients[path] = Client(path)
        return known


def inode(descriptor: int) -> int:
    """0 for what is no open descriptor."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return 0


def stream_of(descriptor: int) -> State:
    state = live.get(inode(descriptor))
    if state is None:
        raise OSError(errno.ENOTSOCK, f"descriptor {descriptor} is no stream that this process has from a NIC")
    return state


def left(descriptor: int, state: State) -> None:
    """Remembers the stream of a descriptor that left its object, and forgets those closed since."""
    for number in [number for number, (other, _) in _detached.items() if inode(other) != number]:
        del _detached[number]
    _detached[inode(descriptor)] = (descriptor, state)


def returned(descriptor: int) -> None:
    """An object has the descriptor again."""
    _detached.pop(inode(descriptor), None)


def new_pair(state: State) -> int:
    """A new pair for this stream: returns the program's end, keeps the NIC's."""
    ours, nics = socket.socketpair()
    state.nic_end = nics.detach()
    descriptor = ours.detach()
    live[inode(descriptor)] = state
    return descriptor
