"""What the daemon waits with: one epoll instance for asyncio's few descriptors and the NIC's many.

Strategy. The NIC's descriptors are registered with `epoll` and never reach asyncio: `select` hands what they have to
say to `turn` and waits on, until there is something for asyncio (a control request, a signal, a timer of its own). So
a packet costs no callback, no handle and no second poll, and control requests are seen before every turn.
"""

from __future__ import annotations

import math
import os
import select
import selectors
from collections.abc import Callable
from typing import Any

Turn = Callable[[list[tuple[int, int]]], bool]
"""Takes descriptors with their epoll masks, asyncio's among them. Returns whether it wants another turn at once."""
_EVENTS = 256
"""Told by one poll."""


class Selector(selectors.EpollSelector):
    def __init__(self) -> None:
        super().__init__()
        self.epoll = select.epoll.fromfd(os.dup(self.fileno()))
        """The same instance, for descriptors that are not asyncio's."""
        self.turn: Turn | None = None
        self.more = False
        """A turn is wanted, whatever the descriptors say."""
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
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the base class, with turns of the NIC while nothing is there for asyncio."""
        wait = -1.0 if timeout is None else max(0.0, math.ceil(timeout * 1e3) * 1e-3)
        while True:
            events = self.epoll.poll(0.0 if self.more else wait, _EVENTS)
            ready = self._ready(events)
            if self.turn is not None and (self.more or len(ready) < len(events)):
                self.more = self.turn(events)
            if ready or wait >= 0.0:
                return ready

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
