"""The daemon's selector: the NIC's descriptors and asyncio's in one epoll instance."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from softnicd.selector import AT_ONCE, NEVER, Selector


class Pipe:
    """A pipe whose read end the NIC watches."""

    def __init__(self, stack: ExitStack, selector: Selector) -> None:
        self.reads, self.writes = os.pipe()
        stack.callback(os.close, self.reads)
        stack.callback(os.close, self.writes)
        selector.epoll.register(self.reads, select.EPOLLIN)


@contextmanager
def running(selector: Selector) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        yield runner


def test_events_of_the_nics_descriptors_go_to_the_nic_only() -> None:
    selector = Selector()
    with running(selector) as runner, ExitStack() as stack:
        pipe = Pipe(stack, selector)
        seen: list[tuple[int, int]] = []

        async def main() -> None:
            done = asyncio.get_running_loop().create_future()

            def turn(events: list[tuple[int, int]]) -> float:
                nonlocal seen
                seen = [event for event in events if event[0] == pipe.reads]
                os.read(pipe.reads, 100)
                asyncio.get_running_loop().call_soon_threadsafe(done.set_result, None)
                return NEVER

            selector.turn = turn
            os.write(pipe.writes, b"x")
            async with asyncio.timeout(20):
                await done

        runner.run(main())
        assert seen == [(pipe.reads, select.EPOLLIN)]


def test_asyncio_runs_while_the_nic_is_always_ready() -> None:
    selector = Selector()
    turns = 0

    def turn(_: list[tuple[int, int]]) -> float:
        nonlocal turns
        turns += 1
        return AT_ONCE

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            reads, writes = os.pipe()
            stack.callback(os.close, reads)
            stack.callback(os.close, writes)
            heard: asyncio.Future[bytes] = loop.create_future()
            loop.add_reader(reads, lambda: heard.set_result(os.read(reads, 100)))
            stack.callback(loop.remove_reader, reads)
            selector.turn, selector.due = turn, AT_ONCE
            await asyncio.sleep(0.001)
            os.write(writes, b"request")
            async with asyncio.timeout(20):
                assert await heard == b"request"
            selector.turn, selector.due = None, NEVER

    with running(selector) as runner:
        runner.run(main())
    assert turns


@pytest.mark.parametrize(("due", "count"), [(AT_ONCE, 1), (-5.0, 1), (NEVER, 0)])
def test_a_requested_turn_runs_without_an_event(due: float, count: int) -> None:
    with Selector() as selector:
        turns: list[list[tuple[int, int]]] = []

        def turn(events: list[tuple[int, int]]) -> float:
            turns.append(events)
            return NEVER

        selector.turn, selector.due = turn, due
        assert selector.select(0) == []
        assert turns == [[]] * count
        assert selector.due == NEVER


def test_a_turn_runs_when_it_is_due_and_not_before() -> None:
    """With the real clock: a wait must not end before the turn is due."""
    with Selector() as selector:
        came: list[tuple[float, float]] = []
        left = 5

        def turn(_: list[tuple[int, int]]) -> float:
            nonlocal left
            now = time.monotonic()
            came.append((selector.due, now))
            left -= 1
            return now + 0.0013 if left else NEVER

        selector.turn, selector.due = turn, AT_ONCE
        while left:
            assert selector.select(60.0) == []
        assert all(due <= now for due, now in came)
        assert len(came) == 5


def test_a_signal_interrupts_the_wait() -> None:
    with Selector() as selector:
        caught: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, _: caught.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while not caught:
                assert selector.select(60.0) == []
        finally:
            signal.signal(signal.SIGALRM, before)
    assert caught == [signal.SIGALRM]


def test_a_closed_instance_is_an_error() -> None:
    selector = Selector()
    selector.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        selector.select(0)


def test_a_descriptor_that_asyncio_unregisters_may_be_reused_by_the_nic() -> None:
    with Selector() as selector, ExitStack() as stack:
        reads, writes = os.pipe()
        stack.callback(os.close, reads)
        stack.callback(os.close, writes)
        os.write(writes, b"x")
        key = selector.register(reads, select.EPOLLIN)
        assert selector.select(0) == [(key, select.EPOLLIN)]
        changed = selector.modify(reads, select.EPOLLIN, "data")
        assert selector.select(0) == [(changed, select.EPOLLIN)]
        selector.unregister(reads)
        assert selector.select(0) == []
        seen: list[tuple[int, int]] = []

        def turn(events: list[tuple[int, int]]) -> float:
            seen.extend(events)
            return NEVER

        selector.turn = turn
        selector.epoll.register(reads, select.EPOLLIN)  # the same number, now the NIC's
        assert selector.select(0) == []
        assert seen == [(reads, select.EPOLLIN)]
