"""What a process holds of its NICs: a connection to each, and the streams behind its descriptors.

A stream is known by its descriptor's inode, which survives dup, fork and a descriptor's move from one socket object to
another (as by ssl).
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from softnic.ipc.client import Client


@dataclass(slots=True, weakref_slot=True, eq=False)
class State:
    """What all descriptors of one stream share: those made by dup, and those that a fork inherits."""

    path: str
    """Of the NIC's control socket."""
    stream: int = 0
    """The NIC's number for it; 0 until the NIC knows it."""
    nic_end: int = -1
    """The NIC's end of the pair, until the NIC has it."""
    objects: int = 0
    """Socket objects with a descriptor of it."""
    inode: int = 0
    """Of the program's end of the pair."""
    local: tuple[str, int] = ("0.0.0.0", 0)
    target: tuple[str, int] | None = None
    """Where a connect that is under way goes."""
    peer: tuple[str, int] | None = None
    bound: bool = False
    listening: bool = False
    send_buffer: int = 0
    """SO_SNDBUF as the program wants it; 0: as the control protocol has it."""
    ended: bool = False
    """The peer's end of stream was seen, with no error behind it."""
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    """Of a thread that starts a connection, or finds out what became of it."""
    options: dict[tuple[int, int], int | str] = field(default_factory=dict)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.nic_end >= 0:  # bound above: at the interpreter's exit the module `os` may be gone
            close(self.nic_end)

    def close_nic_end(self) -> None:
        if self.nic_end >= 0:
            os.close(self.nic_end)
            self.nic_end = -1


_clients: dict[str, Client] = {}
_clients_lock = threading.Lock()
_by_inode: weakref.WeakValueDictionary[int, State] = weakref.WeakValueDictionary()
_detached: dict[int, State] = {}
"""By number, descriptors that left their socket object: each keeps its stream's state until it is closed."""
_detached_lock = threading.RLock()
_CHECKED = 2
"""Detached descriptors that are looked at whenever another is added: more than one, so that closed ones do not gather,
and no more with every live one, so that the cost of each does not grow with their number."""


def _after_fork() -> None:
    global _clients_lock, _detached_lock
    _clients_lock, _detached_lock = threading.Lock(), threading.RLock()
    _clients.clear()
    for state in list(_by_inode.values()):
        state.lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def client(path: str) -> Client:
    """This process's connection to the NIC."""
    with _clients_lock:
        known = _clients.get(path)
        if known is None:
            for other in [other for other, client in _clients.items() if client.is_closed()]:
                del _clients[other]  # of a NIC that has ended: with each that starts, another path comes
            known = _clients[path] = Client(path)
        return known


def _inode(descriptor: int) -> int:
    """0 for what is no open descriptor."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return 0


def stream_of(descriptor: int) -> State:
    """Raises OSError (ENOTSOCK) where the descriptor is not one of a NIC's stream."""
    state = _by_inode.get(_inode(descriptor))
    if state is None:
        raise OSError(errno.ENOTSOCK, f"descriptor {descriptor} is no stream that this process has from a NIC")
    return state


def register(descriptor: int, state: State) -> None:
    """The descriptor is the program's end of this stream."""
    state.inode = _inode(descriptor)
    _by_inode[state.inode] = state


def attach(descriptor: int, state: State) -> None:
    """A socket object has the descriptor."""
    with _detached_lock:
        _detached.pop(descriptor, None)
        state.objects += 1


def close(descriptor: int, state: State) -> None:
    """A socket object is about to close its descriptor."""
    with _detached_lock:
        _detached.pop(descriptor, None)
        state.objects -= 1


def detach(descriptor: int, state: State) -> None:
    """Remembers the stream of a descriptor that left its object, and forgets some of those closed since.

    Without an object nothing opens a stream that is not open yet. Its descriptor ends, so that whoever has it
    (a class of a program's own that is derived from ssl.SSLSocket) does not wait for ever.
    """
    with _detached_lock:
        for number in list(itertools.islice(_detached, _CHECKED)):
            other = _detached.pop(number)
            if _inode(number) == other.inode:
                _detached[number] = other
        _detached[descriptor] = state
        state.objects -= 1
        if not state.objects:
            state.close_nic_end()


def new_pair(state: State) -> int:
    """A new pair for this stream: returns the program's end, keeps the NIC's."""
    ours, nics = socket.socketpair()
    state.nic_end = nics.detach()
    descriptor = ours.detach()
    register(descriptor, state)
    return descriptor
