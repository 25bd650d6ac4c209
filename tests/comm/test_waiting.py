"""Waiting: what wakes a thread that polls, threads that lead and follow, and event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from softnic.comm.waiting import Waiter, Waker, background, wait, wait_async

ROOT = Path(__file__).resolve().parents[2]
AT_EXIT = """
import builtins
from softnic.comm.waiting import Waker
builtins.kept = Waker()  # destroyed after the modules
"""


def is_ready(waker: Waker) -> bool:
    return bool(select.select([waker.fd], [], [], 0)[0])


def test_a_waker_is_ready_until_it_is_cleared() -> None:
    waker = Waker()
    waker.clear()
    assert not is_ready(waker)
    waker.wake()
    waker.wake()
    assert is_ready(waker)
    waker.clear()
    assert not is_ready(waker)


def test_a_closed_waker_touches_no_descriptor() -> None:
    waker = Waker()
    number = waker.fd
    waker.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert other == number, "the number was not free again"
        waker.wake()
        waker.close()
        del waker
        assert not select.select([other], [], [], 0)[0]
    finally:
        os.close(other)


def test_a_waker_that_is_left_at_exit_prints_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_EXIT], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert ended.stderr == ""


class Mailbox:
    """A source: bytes that arrive on a socket, counted by whoever handles them."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._lock = threading.Lock()
        self.waiter = Waiter()
        self.waiter.register(self._ours.fileno())
        self.received = 0
        self.handled_by: set[int] = set()
        self.failure: object = None

    def send(self) -> None:
        self._theirs.send(b"x")

    def advance(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            while self._ours.recv(1):
                self.received += 1
                self.handled_by.add(threading.get_ident())
                self.waiter.notify()

    def has(self, count: int) -> Callable[[], bool]:
        return lambda: self.received >= count

    def close(self) -> None:
        self.waiter.close()
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def box() -> Iterator[Mailbox]:
    made = Mailbox()
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Mailbox]:
    made = Mailbox()
    yield made
    made.close()


@contextlib.contextmanager
def started(*targets: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Run functions in threads, which have to end soon after the block."""
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(SOON_S)
        assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


SOON_S = 10
"""Time limit, on a busy machine, for what happens at once."""


@pytest.fixture(autouse=True)
def _no_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is noticed because a thread looks now and then."""
    monkeypatch.setattr("softnic.comm.waiting.HEARTBEAT_INTERVAL_S", 60.0)


def soon() -> float:
    """By when something has to happen that no timeout brings about."""
    return time.monotonic() + SOON_S


def test_one_thread_polls_and_the_others_follow(box: Mailbox) -> None:
    def waiting(count: int) -> Callable[[], None]:
        return lambda: wait([box], box.has(count))

    with started(waiting(1), waiting(2), waiting(3)):
        until(lambda: box.waiter.is_waited_for and box.waiter._followers == 2)
        for count in (1, 2, 3):
            before = soon()
            box.send()
            until(box.has(count))
            assert time.monotonic() < before
    assert not box.waiter.is_waited_for


def test_a_follower_polls_when_the_thread_that_polled_has_left(box: Mailbox) -> None:
    with started(lambda: wait([box], box.has(2))):
        until(lambda: box.waiter.is_waited_for)
        with started(lambda: wait([box], box.has(1)), lambda: wait([box], box.has(1))) as first:
            until(lambda: box.waiter._followers == 2)
            box.send()
            for thread in first:
                thread.join(SOON_S)
                assert not thread.is_alive()
        until(lambda: box.waiter.is_waited_for)
        box.send()


def test_a_follower_polls_when_the_thread_that_polled_has_given_up(box: Mailbox) -> None:
    with started(lambda: wait([box], lambda: False, 0.2)) as first:
        until(lambda: box.waiter.is_waited_for)
        with started(lambda: wait([box], box.has(1))):
            until(lambda: box.waiter._followers == 1)
            first[0].join(SOON_S)
            until(lambda: box.waiter.is_waited_for)
            box.send()


def test_what_another_thread_has_handled_ends_a_wait(box: Mailbox) -> None:
    with started(lambda: wait([box], box.has(1))) as (thread,):
        until(lambda: box.waiter.is_waited_for)
        box.received = 1
        box.waiter.notify()
        thread.join(SOON_S)
        assert not thread.is_alive()
    assert box.handled_by == set()
    assert box.waiter.poll() == []  # clears a wake that came when the thread had just looked
    assert not select.select([box.waiter.fd], [], [], 0)[0]


def test_nothing_is_missed_between_a_look_and_the_wait(box: Mailbox) -> None:
    changes = box.waiter.changes
    box.waiter.notify()
    before = soon()
    for polled_by in (0, 1):  # another thread
        box.waiter._polled_by = polled_by
        assert box.waiter.wait(changes, 60) is None
    box.waiter._polled_by = 0
    assert time.monotonic() < before


def test_waits_of_several_sources(box: Mailbox, other: Mailbox) -> None:
    with started(
        lambda: wait([box, other], lambda: box.received + other.received >= 2),
        lambda: wait([other], other.has(1)),
        lambda: wait([box], box.has(1)),
    ) as threads:
        until(lambda: box.waiter.is_waited_for and other.waiter.is_waited_for)
        other.send()
        threads[1].join(SOON_S)
        assert [thread.is_alive() for thread in threads] == [True, False, True]
        box.send()
        for thread in threads:
            thread.join(SOON_S)
            assert not thread.is_alive()
    assert not box.waiter._observers
    assert not other.waiter._observers


def test_sources_that_share_a_waiter(box: Mailbox, other: Mailbox) -> None:
    other.waiter = box.waiter
    box.send()
    wait([box, other], box.has(1))
    assert box.received == 1


def test_a_limit_ends_a_wait(box: Mailbox) -> None:
    before = time.monotonic()
    wait([box], lambda: False, 0.05)
    assert 0.05 <= time.monotonic() - before < SOON_S


@pytest.mark.parametrize("threads", [2, 5])
def test_no_wake_is_lost(box: Mailbox, other: Mailbox, threads: int) -> None:
    """Every thread waits for each of many messages, which it may handle itself or not, at one source or at both."""
    rounds, reached = 300, [0] * threads

    def run(number: int) -> None:
        random = Random(number)
        for count in range(1, rounds + 1):
            wait([box, other] if random.random() < 0.3 else [box], box.has(count))
            reached[number] = count

    with started(*(lambda number=number: run(number) for number in range(threads))):
        for count in range(1, rounds + 1):
            box.send()
            if count % 3 == 0:
                box.advance()
            until(lambda count=count: min(reached) >= count)  # type: ignore[misc]


def test_an_interrupt_leaves_the_waiter_to_others(box: Mailbox) -> None:
    def interrupt() -> None:
        until(lambda: box.waiter.is_waited_for)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with started(interrupt), pytest.raises(KeyboardInterrupt):
        wait([box], lambda: False)
    assert not box.waiter.is_waited_for
    box.send()
    wait([box], box.has(1))


def test_the_handler_of_a_signal_may_wait_where_its_thread_polls(box: Mailbox) -> None:
    handled = []

    def handle(_number: int, _frame: object) -> None:
        box.send()
        wait([box], box.has(1))
        handled.append(box.received)

    def interrupt() -> None:
        until(lambda: box.waiter.is_waited_for)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        until(lambda: bool(handled))
        box.send()

    before, kept = soon(), signal.signal(signal.SIGUSR1, handle)
    try:
        with started(interrupt):
            wait([box], box.has(2))
    finally:
        signal.signal(signal.SIGUSR1, kept)
    assert handled == [1]
    assert time.monotonic() < before


def test_a_wake_that_comes_too_late_does_not_keep_its_waiter_ready(box: Mailbox) -> None:
    outer = Waiter()
    outer.watch(box.waiter)
    box.waiter._polled_by = 1  # as a thread that is about to leave
    box.waiter.notify()
    box.waiter._polled_by = 0
    assert [fd for fd, _ in outer.poll()] == [box.waiter.fd]
    assert outer.poll() == []
    outer.unwatch_all()
    outer.close()


def test_a_thread_that_waits_attends_to_communicators_in_the_background(box: Mailbox, other: Mailbox) -> None:
    background.append(other)
    try:
        with started(lambda: wait([box], box.has(1))):
            until(lambda: box.waiter.is_waited_for)
            before = soon()
            other.send()
            until(other.has(1))
            assert time.monotonic() < before
            box.send()
        assert other.handled_by == box.handled_by
    finally:
        background.remove(other)


def test_they_are_looked_at_now_and_then_where_nothing_happens(
    box: Mailbox, other: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NIC that says nothing has to be asked whether it lives."""
    monkeypatch.setattr("softnic.comm.waiting.HEARTBEAT_INTERVAL_S", 0.01)
    looks: list[float] = []
    monkeypatch.setattr(other, "advance", lambda: looks.append(time.monotonic()))
    background.append(other)
    try:
        wait([box], lambda: len(looks) >= 3)
    finally:
        background.remove(other)
    assert looks[2] - looks[1] >= 0.009


def test_a_closed_waiter_ends_its_waits(box: Mailbox) -> None:
    gone: list[bool] = []
    with started(lambda: wait([box], lambda: bool(gone))):
        until(lambda: box.waiter.is_waited_for)
        gone.append(True)
        box.waiter.close()
    assert box.waiter.fd == box.waiter._waker.fd == -1
    assert box.waiter._epoll.closed
    assert box.waiter.wait(box.waiter.changes, 60) == []


def test_a_forked_process_closes_what_threads_of_its_parent_wait_for(box: Mailbox) -> None:
    """Also if one of them held a lock just then."""
    with started(box.waiter._lock.acquire):
        box.waiter._polled_by = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there may be other threads
        number, child = box.waiter.fd, os.fork()
    if not child:
        signal.alarm(SOON_S)
        box.close()
        try:
            os.fstat(number)
        except OSError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    box.waiter.forget_threads()


async def test_coroutines_of_one_loop(box: Mailbox) -> None:
    waits = [asyncio.create_task(wait_async(box, box.has(count))) for count in (1, 2, 2)]
    await asyncio.sleep(0)
    for count, ended in ((1, 1), (2, 3)):
        box.send()
        async with asyncio.timeout(SOON_S):
            await asyncio.gather(*waits[:ended])
        assert [each.done() for each in waits].count(True) == ended
        assert box.received == count
    assert not box.waiter._observers
    asyncio.get_running_loop().call_later(0.01, box.send)
    async with asyncio.timeout(SOON_S):
        await wait_async(box, box.has(3))


@pytest.mark.parametrize("in_loop", [False, True])
async def test_what_is_handled_elsewhere_continues_a_coroutine(box: Mailbox, in_loop: bool) -> None:
    waits = [asyncio.create_task(wait_async(box, box.has(count))) for count in (1, 2)]
    await asyncio.sleep(0)
    for waiting in waits:
        box.send()
        if in_loop:
            box.advance()
        else:
            with started(box.advance):
                pass
        assert not waiting.done()
        async with asyncio.timeout(SOON_S):
            await waiting


async def test_a_cancelled_coroutine_leaves_the_others(box: Mailbox) -> None:
    first, second = (asyncio.create_task(wait_async(box, box.has(1))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    box.send()
    async with asyncio.timeout(SOON_S):
        await second
    assert first.cancelled()


def test_loops_of_several_threads(box: Mailbox) -> None:
    def run() -> None:
        asyncio.run(wait_async(box, box.has(1)))

    with started(run, run, lambda: wait([box], box.has(1))):
        until(lambda: len(box.waiter._observers) == 2 and box.waiter.is_waited_for)
        before = soon()
        box.send()
        until(box.has(1))
    assert time.monotonic() < before
    assert not box.waiter._observers


async def test_a_source_that_has_failed_does_not_keep_the_loop_busy(box: Mailbox) -> None:
    looks = []

    def done() -> bool:
        looks.append(box.failure)
        return len(looks) > 3

    waiting = asyncio.create_task(wait_async(box, done))
    await asyncio.sleep(0)
    box.failure = "it is gone"
    box.advance = lambda: None  # type: ignore[method-assign]
    box.send()
    await asyncio.sleep(0.2)
    assert len(looks) == 2
    waiting.cancel()
