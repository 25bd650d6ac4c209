"""Waiting for NICs and other ranks, in any number of threads and event loops.

What can be waited for is a Source: a work queue, or the messages of a communicator. Each has a Waiter: an epoll over
its file descriptors and over one that wakes. Of the threads that wait for a source one polls and handles what has
happened (`advance`); the others follow: they look again whenever the source changed. A source that changes notifies its
Waiter, and those that watch it: that of several sources, that of its communicator, and event loops.

A thread that waits looks, then waits until something has happened since: it reads `changes` before it looks, so that
nothing is missed in between.
"""

from __future__ import annotations

import itertools
import math
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S

if TYPE_CHECKING:
    import asyncio

Ready = list[tuple[int, int]]
"""File descriptors, and what they are ready for."""


class Waker:
    """Wakes one thread that polls `fd`."""

    fd = -1
    """Of an eventfd; -1 once it is closed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """Make the fd readable. Has no effect once it is closed."""
        with self.lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Make the fd unreadable. Has no effect once it is closed."""
        with self.lock, suppress(BlockingIOError):
            if self.fd >= 0:
                os.eventfd_read(self.fd)

    def close(self) -> None:
        """Close the fd; called by the thread that polls it, or after that thread has ended."""
        with self.lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:  # `close` is bound above: at the interpreter's exit the module `os` may be gone
            close(self.fd)


class Source(Protocol):
    """What can be waited for."""

    @property
    def waiter(self) -> Waiter:
        """Notified whenever something has happened here."""

    @property
    def failure(self) -> object:
        """Not None: nothing happens here any more."""

    def advance(self) -> None:
        """Handle what has happened, without waiting."""


class Observer(Protocol):
    """Learns that a source has changed."""

    def notify(self) -> None:
        """Called by the thread that has changed it."""


background: list[Source] = []
"""Communicators with messages in progress, to which every thread attends that waits for anything."""
os.register_at_fork(after_in_child=background.clear)


class Waiter:
    """Waits for one source, or for several. Thread-safe."""

    def __init__(self) -> None:
        self.changes = 0
        """Another number whenever something has happened."""
        self._numbers = itertools.count(1)
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        """Readable when something is to be done; -1: closed."""
        self._waker = Waker()
        self._wake_fd = self._waker.fd
        self._epoll.register(self._wake_fd, select.POLLIN)
        self._lock = threading.RLock()
        self._followed = threading.Condition(self._lock)
        self._polled_by = 0
        """The thread that polls; 0: none does."""
        self._followers = 0
        """Threads that wait for that one."""
        self._is_woken = False
        """The Waker was used, and is not clear."""
        self._observers: list[Observer] = []
        self._watched: list[Waiter] = []
        self._loops: dict[asyncio.AbstractEventLoop, LoopWaiter] = {}
        _open.add(self)

    def forget_threads(self) -> None:
        """In a forked process: no thread waits, or holds a lock."""
        self._lock, self._waker.lock = threading.RLock(), threading.RLock()
        self._followed = threading.Condition(self._lock)
        self._polled_by = self._followers = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether a thread waits here."""
        return bool(self._polled_by)

    # What is waited for

    def register(self, fd: int, events: int = select.POLLIN) -> None:
        """Poll a file descriptor, too."""
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Poll a file descriptor for other events."""
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Poll a file descriptor no longer."""
        self._epoll.unregister(fd)

    def watch(self, other: Waiter) -> None:
        """Wait for what another one waits for, too."""
        if other.fd >= 0:
            self._epoll.register(other.fd, select.POLLIN)
        self._watched.append(other)
        other._observers.append(self)

    def unwatch_all(self) -> None:
        """Undo all of `watch`."""
        while self._watched:
            other = self._watched.pop()
            other._observers.remove(self)
            if other.fd >= 0:  # a closed one has gone from the epoll by itself
                self._epoll.unregister(other.fd)

    # Waiting

    def notify(self) -> None:
        """Have all look again that wait here."""
        self.changes = next(self._numbers)  # first: a thread that is about to wait sees this, or is seen below
        if self._followers:
            with self._lock:
                self._followed.notify_all()
        if self._polled_by:
            self._waker.wake()
            self._is_woken = True
        if self._observers:
            for observer in list(self._observers):
                observer.notify()

    def wait(self, changes: int, timeout_s: float) -> Ready | None:
        """Wait until something happens, unless something has since `changes` was read.

        Returns what is ready, which this thread is to handle before it notifies the others; None if there is nothing to
        handle: this thread followed another one, or something has happened. The caller holds no lock of a communicator.
        """
        thread, before, polls = threading.get_ident(), 0, False
        try:
            with self._lock:
                before = self._polled_by
                if self.fd < 0:
                    return []
                if before not in (0, thread):
                    self._follow(changes, timeout_s)
                    return None
                polls = True
                self._polled_by = thread  # again, if a signal's handler waits where its thread polls
            ready = self._poll(timeout_s) if self.changes == changes else None
        finally:  # an interrupt may come anywhere
            if polls:
                self._polled_by = before
                if self.fd < 0:
                    self.close()
        return self._cleared(ready) if ready and self.fd >= 0 else ready

    def _follow(self, changes: int, timeout_s: float) -> None:
        self._followers += 1
        try:
            if self.changes == changes:
                self._followed.wait(timeout_s)
        finally:
            self._followers -= 1

    def _poll(self, timeout_s: float) -> Ready:
        """Poll, and make progress on communicators with messages in progress that are not waited for here."""
        if background:
            others = [each for each in background if each.waiter is not self and each.waiter not in self._watched]
            if others:
                self._attend(others, timeout_s)
                timeout_s = 0
        return self._epoll.poll(timeout_s)

    def _attend(self, others: Sequence[Source], timeout_s: float) -> None:
        both = select.poll()
        for fd in {self.fd, *(other.waiter.fd for other in others)} - {-1}:
            both.register(fd, select.POLLIN)
        found = {fd for fd, _ in both.poll(math.ceil(timeout_s * 1000))}
        for other in others:
            if not found or other.waiter.fd in found:
                other.advance()

    def _cleared(self, ready: Ready) -> Ready:
        """Return what is ready but for the wakes, which are cleared."""
        for each in self._watched:
            if each._is_woken:
                each.clear()
        if len(ready) == 1 and ready[0][0] != self._wake_fd:
            return ready
        self.clear()
        return [each for each in ready if each[0] != self._wake_fd]

    def clear(self) -> None:
        """Clear a wake that came when its thread no longer polled: it would keep the epoll readable."""
        if self._is_woken:
            with self._lock:
                if not self._polled_by:
                    self._is_woken = False
                    self._waker.clear()

    def poll(self) -> Ready:
        """Return what is ready now."""
        ready = self._epoll.poll(0)
        return self._cleared(ready) if ready else ready

    def close(self) -> None:
        """Close the file descriptors. Threads that wait return; the one that polls closes when it does."""
        self.fd = -1
        with self._lock:
            is_polled = bool(self._polled_by)
        self.notify()
        if not is_polled:
            self._epoll.close()
            self._waker.close()


_open: weakref.WeakSet[Waiter] = weakref.WeakSet()


def _forget_threads() -> None:
    for waiter in list(_open):
        waiter.forget_threads()


os.register_at_fork(after_in_child=_forget_threads)


def wait(sources: Sequence[Source], done: Callable[[], bool], limit_s: float = math.inf) -> None:
    """Return when `done()`, which is called whenever something has happened in one of the sources, or after `limit_s`.

    An exception of a signal handler leaves everything as it was.
    """
    waiters = {source.waiter for source in sources}
    if len(waiters) == 1:
        _wait(waiters.pop(), sources, done, limit_s)
        return
    waiter = _idle.pop() if _idle else Waiter()
    try:
        for each in waiters:
            waiter.watch(each)
        _wait(waiter, sources, done, limit_s)
    finally:
        waiter.unwatch_all()
        _idle.append(waiter)


_idle: list[Waiter] = []
"""For the next wait for several sources: one for each thread that has waited so at the same time as others."""
os.register_at_fork(after_in_child=_idle.clear)


def _wait(waiter: Waiter, sources: Sequence[Source], done: Callable[[], bool], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    try:
        while True:
            changes = waiter.changes
            if done() or (left_s := until - time.monotonic()) <= 0:
                return
            waiter.wait(changes, min(left_s, HEARTBEAT_INTERVAL_S))
            for source in sources:
                source.advance()
    finally:
        waiter.notify()  # another thread is to poll


async def wait_async(source: Source, done: Callable[[], bool]) -> None:
    """Return when `done()`; the event loop runs until then."""
    import asyncio  # here, because it takes a tenth of the import of softnic.MPI

    loop = asyncio.get_running_loop()
    loops = source.waiter._loops
    in_loop = loops.get(loop)
    if in_loop is None:
        in_loop = loops[loop] = LoopWaiter(source, loop)
    future: asyncio.Future[None] = loop.create_future()
    in_loop.waiting[future] = done
    try:
        source.advance()
        if not done():
            await future
    finally:
        del in_loop.waiting[future]
        if not in_loop.waiting:
            loops.pop(loop, None)
            in_loop.close()


class LoopWaiter:
    """Waits for a source in an event loop, for all coroutines there: its reader is a duplicate of the Waiter's `fd`."""

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """What the coroutines wait for."""
        self._source = source
        self._waiter = source.waiter
        self._loop = loop
        self._is_due = False
        """The loop will look."""
        self._fd = os.dup(self._waiter.fd) if self._waiter.fd >= 0 else -1
        if self._fd >= 0:
            loop.add_reader(self._fd, self._advance)
        self._timer = loop.call_later(HEARTBEAT_INTERVAL_S, self._on_timer)
        self._waiter._observers.append(self)

    def notify(self) -> None:
        """Have the loop look again."""
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop was closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Continue the coroutines whose wait is over."""
        self._is_due = False
        for future, done in list(self.waiting.items()):
            if not future.done() and done():
                future.set_result(None)

    def _advance(self) -> None:
        self._source.advance()
        self._waiter.clear()
        if self._source.failure is not None and self._fd >= 0:  # what is unread would keep it readable
            self._loop.remove_reader(self._fd)
        self._look()

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(HEARTBEAT_INTERVAL_S, self._on_timer)
        self._advance()

    def close(self) -> None:
        self._waiter._observers.remove(self)
        self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
