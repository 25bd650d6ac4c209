"""Waiting for what NICs say, in any number of threads and event loops.

Each of them polls the socket of the group that it waits for, and takes in what comes; a thread is woken by its bell
when another one has read what it waits for.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Protocol

from softnic.comm.heartbeat import EVERY_S


class Bell:
    """Wakes one thread that polls."""

    descriptor = -1
    """Of an eventfd; -1 once it is closed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Has no effect once it is closed."""
        with self._lock:
            if self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)

    def quiet(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """To be called by the thread that polls, or after it has ended."""
        with self._lock:
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor >= 0:  # bound above: at the interpreter's exit the module `os` may be gone
            close(self.descriptor)


class Awaited(Protocol):
    """What is asked of a group (group.py) by those who wait for it."""

    @property
    def failure(self) -> object: ...

    @property
    def wants(self) -> tuple[int, int]: ...

    def advance(self) -> None: ...

    def listening(self, bell: Bell) -> AbstractContextManager[None]: ...


class Watch:
    """An event loop in which somebody waits for a group. On a descriptor of its own, so that nobody closes it."""

    def __init__(self, group: Awaited, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting = 0
        self._group = group
        self._loop = loop
        self._descriptor = os.dup(group.wants[0])
        self._writing = False
        loop.add_reader(self._descriptor, self._advance)
        self._timer = loop.call_later(EVERY_S, self._beat)

    def rearm(self) -> None:
        """Wants to know when there is room, if something could not be sent yet."""
        writing = bool(self._group.wants[1] & select.POLLOUT)
        if writing and not self._writing:
            self._loop.add_writer(self._descriptor, self._advance)
        elif self._writing and not writing:
            self._loop.remove_writer(self._descriptor)
        self._writing = writing

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._descriptor)
        if self._writing:
            self._loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _advance(self) -> None:
        self._group.advance()
        self.rearm()
        if self._group.failure is not None:  # what was not read stays readable
            self._loop.remove_reader(self._descriptor)

    def _beat(self) -> None:
        self._advance()
        self._timer = self._loop.call_later(EVERY_S, self._beat)


def wait(groups: Iterable[Awaited], done: Callable[[], bool]) -> None:
    """Returns when `done`, which is asked whenever something has happened in one of the groups. Interrupted by a
    signal's exception, it leaves everything as it was."""
    groups, bell = list(groups), Bell()
    with ExitStack() as stack:
        for group in groups:
            stack.enter_context(group.listening(bell))
        while True:
            for group in groups:
                group.advance()
            if done():
                return
            poll = select.poll()
            poll.register(bell.descriptor, select.POLLIN)
            for descriptor, wanted in (group.wants for group in groups):
                if descriptor >= 0:
                    poll.register(descriptor, wanted)
            poll.poll(EVERY_S * 1000)
            bell.quiet()
