"""Selector: one epoll instance for asyncio's few file descriptors and the NIC's many.

The NIC's file descriptors are registered with `epoll` and never reach asyncio: `select` passes their events to `turn`
and continues to wait until there is an event for asyncio (a control request, a signal, a timer). So a packet costs no
callback, no handle and no second poll, and control requests are seen before every turn. A turn returns when the next
one is due; the wait ends then, to the microsecond, without a timerfd to set and to read.
"""

from __future__ import annotations

import errno
import math
import os
import select
import selectors
import time
from collections.abc import Callable
from typing import Any, Protocol

from softnic._native import ffi, lib

Turn = Callable[[list[tuple[int, int]]], float]
"""Takes file descriptors with their epoll masks, asyncio's included. Returns when the next turn is due: a
time of `time.monotonic`, AT_ONCE or NEVER."""
AT_ONCE, NEVER = 0.0, math.inf
_MAX_EVENTS = 256
"""Of one poll."""


class TurnsInC(Protocol):
    """Turns in C (turn.py)."""

    @property
    def can_run(self) -> bool:
        """Whether `wait` may be called now."""

    def wait(self, until: float) -> tuple[list[tuple[int, int]], float]:
        """Waits for events and takes turns. Returns the events that are left, and when `turn` is due."""


class Selector(selectors.EpollSelector):
    """A selector for asyncio that runs the NIC's turns while it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.epoll = select.epoll.fromfd(os.dup(self.fileno()))
        """The same epoll instance, for file descriptors that are not asyncio's."""
        self.turn: Turn | None = None
        self.turn_in_c: TurnsInC | None = None
        """Waits and takes turns in C, until there are events for `turn`."""
        self.due = NEVER
        """When the next turn is due without an event."""
        self._fds = ffi.new("int32_t[]", _MAX_EVENTS)
        self._masks = ffi.new("uint32_t[]", _MAX_EVENTS)
        self._instance = self.fileno()
        lib.sn_set_timer_slack()
        self._asyncio_keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._asyncio_keys[key.fd] = key
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().modify(fileobj, events, data)
        self._asyncio_keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        del self._asyncio_keys[key.fd]
        return key

    def close(self) -> None:
        self.epoll.close()
        self._instance = -1
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits as the base class does, and runs the NIC's turns until there is an event for asyncio."""
        while True:
            events = self._wait(timeout)
            ready = self._ready(events)
            if self.turn is not None and (len(ready) < len(events) or self.due <= time.monotonic()):
                self.due = self.turn(events)
            if ready or timeout is not None:
                return ready

    def _wait(self, timeout: float | None) -> list[tuple[int, int]]:
        """Waits for events, at most `timeout` and until the next turn is due. Raises OSError."""
        wait = NEVER if timeout is None else max(0.0, timeout)
        if self.turn_in_c is not None and self.due > AT_ONCE and self.turn_in_c.can_run:
            events, self.due = self.turn_in_c.wait(time.monotonic() + wait)
            return events
        if self.due != NEVER:
            wait = min(wait, max(0.0, self.due - time.monotonic())) if self.due > AT_ONCE else 0.0
        wait_ns = -1 if wait == NEVER else math.ceil(wait * 1e9)
        fds, masks = self._fds, self._masks
        found = lib.sn_epoll_wait(self._instance, wait_ns, fds, masks, _MAX_EVENTS)
        if found >= 0:
            return [(fds[index], masks[index]) for index in range(found)]
        if found != -errno.EINTR:
            raise OSError(-found, os.strerror(-found))
        return []

    def _ready(self, events: list[tuple[int, int]]) -> list[tuple[selectors.SelectorKey, int]]:
        """The events of asyncio's file descriptors."""
        ready = []
        keys = self._asyncio_keys
        for fd, mask in events:
            if fd in keys:
                key = keys[fd]
                ready_for = selectors.EVENT_READ if mask & ~select.EPOLLOUT else 0
                if mask & ~select.EPOLLIN:
                    ready_for |= selectors.EVENT_WRITE
                ready.append((key, ready_for & key.events))
        return ready
