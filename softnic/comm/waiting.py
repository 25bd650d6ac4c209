"""Waiting for NICs, in any number of threads and event loops.

Each waiter polls the work queues that it waits for and handles their completions. A thread is woken by its Waker when
another thread has handled the completion that it waits for.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S


class Waker:
    """Wakes one thread that polls `fd`."""

    fd = -1
    """Of an eventfd; -1 once it is closed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.attended_by = 0
        """A thread that looks at everything before it polls again, and need not be woken by itself; 0: none. In a poll
        it is, by a signal's handler."""
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """Make the fd readable. Has no effect once it is closed."""
        if self.attended_by == threading.get_ident():
            return
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Make the fd unreadable."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Close the fd; called by the thread that polls it, or after that thread has ended."""
        with self._lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:  # `close` is bound above: at the interpreter's exit the module `os` may be gone
            close(self.fd)


class Waitable(Protocol):
    """What waiters need of a work queue (offload_queue.py)."""

    @property
    def failure(self) -> object: ...

    @property
    def poll_events(self) -> tuple[int, int]: ...

    def advance(self) -> None: ...

    @property
    def wakers(self) -> list[Waker]:
        """Woken whenever something has happened here."""


background: list[Waitable] = []
"""Communicators with messages in progress, to which every thread attends that waits for anything."""
os.register_at_fork(after_in_child=background.clear)


class BackgroundPoll:
    """Polls for one communicator, and makes progress on all others that have messages in progress."""

    def __init__(self) -> None:
        self.own: Waitable | None = None
        """The communicator that polls."""

    def poll(self, poll: select.epoll, timeout_s: float) -> bool:
        """Wait until `poll` or another communicator is ready. Return False, at once, if there is no other one.

        The caller holds no lock of a communicator.
        """
        if not background or (len(background) == 1 and background[0] is self.own):
            return False
        others = [each for each in background if each is not self.own]
        both = select.poll()
        both.register(poll.fileno(), select.POLLIN)
        for other in others:
            if (events := other.poll_events)[0] >= 0:
                both.register(*events)
        ready = {fd for fd, _ in both.poll(math.ceil(timeout_s * 1000))}
        for other in others:
            if other.poll_events[0] in ready:
                other.advance()
        return True


class LoopWaiter:
    """Handles the completions of a queue in an event loop, over a duplicate of its file descriptor."""

    def __init__(
        self, queue: Waitable, loop: asyncio.AbstractEventLoop, notify: Callable[[], None] = lambda: None
    ) -> None:
        self.users = 0
        """Coroutines that wait."""
        self._queue = queue
        self._loop = loop
        self._notify = notify
        """Called after each look at the queue."""
        self._fd = os.dup(queue.poll_events[0])
        self._writing = False
        loop.add_reader(self._fd, self._advance)
        self._timer = loop.call_later(HEARTBEAT_INTERVAL_S, self._on_timer)

    def rearm(self) -> None:
        """Watch for writability exactly while something is unsent."""
        writing = bool(self._queue.poll_events[1] & select.POLLOUT)
        if writing and not self._writing:
            self._loop.add_writer(self._fd, self._advance)
        elif self._writing and not writing:
            self._loop.remove_writer(self._fd)
        self._writing = writing

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        os.close(self._fd)

    def _advance(self) -> None:
        self._queue.advance()
        self.rearm()
        self._notify()
        if self._queue.failure is not None:  # unread messages would keep it readable
            self._loop.remove_reader(self._fd)

    def _on_timer(self) -> None:
        self._advance()
        self._timer = self._loop.call_later(HEARTBEAT_INTERVAL_S, self._on_timer)


def wait(queues: Iterable[Waitable], done: Callable[[], bool], limit_s: float = math.inf) -> None:
    """Return when `done()`, which is called whenever something has happened in one of the queues, or after `limit_s`.

    An exception of a signal handler leaves everything as it was.
    """
    queues, until = list(queues), time.monotonic() + limit_s
    waker = _idle_wakers.pop() if _idle_wakers else Waker()
    try:
        for queue in queues:
            queue.wakers.append(waker)
        waker.attended_by = threading.get_ident()
        while not done() and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(waker.fd, select.POLLIN)
            for fd, events in [queue.poll_events for queue in queues]:
                if fd >= 0:
                    poll.register(fd, events)
            for each in list(background):
                if (each_events := each.poll_events)[0] >= 0:
                    poll.register(*each_events)
            waker.attended_by = 0
            ready = poll.poll(math.ceil(min(left_s, HEARTBEAT_INTERVAL_S) * 1000))
            waker.attended_by = threading.get_ident()
            if any([fd == waker.fd for fd, _ in ready]):
                waker.clear()
            for queue in queues:
                queue.advance()
            for each in list(background):
                if each not in queues:
                    each.advance()
    finally:
        waker.attended_by = 0
        for queue in queues:
            if waker in queue.wakers:
                queue.wakers.remove(waker)
        _idle_wakers.append(waker)


_idle_wakers: list[Waker] = []
"""For the next `wait`: a file descriptor is kept for each thread that has waited at the same time as others."""
os.register_at_fork(after_in_child=_idle_wakers.clear)
