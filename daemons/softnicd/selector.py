"""What the daemon waits with: one epoll instance for asyncio's few descriptors and the NIC's many.

Strategy. The NIC's descriptors are registered with `epoll` and never reach asyncio: `select` hands what they have to
say to `turn` and waits on, until there is something for asyncio (a control request, a signal, a timer of its own). So
a packet costs no callback, no handle and no second poll, and control requests are seen before every turn. A turn says
when it wants the next one; the wait ends then, to the microsecond, without a timer's descriptor to set and to read.
"""

from __future__ import annotations

import errno
import math
import os
import select
import selectors
import time
from collections.abc import Callable
from typing import Any

from softnic._native import ffi, lib

Turn = Callable[[list[tuple[int, int]]], float]
"""Takes descriptors with their epoll masks, asyncio's among them. Returns when it wants its next turn, if nothing
happens before: a time of `time.monotonic`, AT_ONCE or NEVER."""
AT_ONCE, NEVER = 0.0, math.inf
_EVENTS = 256
"""Told by one poll."""


class Selector(selectors.EpollSelector):
    def __init__(self) -> None:
        super().__init__()
        self.epoll = select.epoll.fromfd(os.dup(self.fileno()))
        """The same instance, for descriptors that are not asyncio's."""
        self.turn: Turn | None = None
        self.due = NEVER
        """When a turn is wanted, whatever the descriptors say."""
        self._descriptors = ffi.new("int32_t[]", _EVENTS)
        self._masks = ffi.new("uint32_t[]", _EVENTS)
        self._instance = self.fileno()
        lib.sn_set_timer_slack()
        self._theirs: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._theirs[key.fd] = key
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().modify(fileobj, events, data)
        self._theirs[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        del self._theirs[key.fd]
        return key

    def close(self) -> None:
        self.epoll.close()
        self._instance = -1
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the base class, with turns of the NIC while nothing is there for asyncio."""
        while True:
            events = self._wait(timeout)
            ready = self._ready(events)
            if self.turn is not None and (len(ready) < len(events) or self.due <= time.monotonic()):
                self.due = self.turn(events)
            if ready or timeout is not None:
                return ready

    def _wait(self, timeout: float | None) -> list[tuple[int, int]]:
        """Raises OSError."""
        wait = NEVER if timeout is None else max(0.0, timeout)
        if self.due != NEVER:
            wait = min(wait, max(0.0, self.due - time.monotonic())) if self.due > AT_ONCE else 0.0
        wait_ns = -1 if wait == NEVER else math.ceil(wait * 1e9)
        descriptors, masks = self._descriptors, self._masks
        found = lib.sn_epoll_wait(self._instance, wait_ns, descriptors, masks, _EVENTS)
        if found >= 0:
            return [(descriptors[index], masks[index]) for index in range(found)]
        if found != -errno.EINTR:
            raise OSError(-found, os.strerror(-found))
        return []

    def _ready(self, events: list[tuple[int, int]]) -> list[tuple[selectors.SelectorKey, int]]:
        """Those of asyncio."""
        ready = []
        theirs = self._theirs
        for descriptor, mask in events:
            if descriptor in theirs:
                key = theirs[descriptor]
                what = selectors.EVENT_READ if mask & ~select.EPOLLOUT else 0
                if mask & ~select.EPOLLIN:
                    what |= selectors.EVENT_WRITE
                ready.append((key, what & key.events))
        return ready
