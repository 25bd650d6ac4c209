"""What the daemon waits with: the NIC's descriptors and asyncio's in one epoll instance."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from softnicd.selector import Selector


class Pipe:
    """A pipe whose reading end the NIC watches."""

    def __init__(self, stack: ExitStack, selector: Selector) -> None:
        self.reads, self.writes = os.pipe()
        stack.callback(os.close, self.reads)
        stack.callback(os.close, self.writes)
        selector.epoll.register(self.reads, select.EPOLLIN)


@contextmanager
def running(selector: Selector) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        yield runner


def test_the_nics_descriptors_are_told_to_the_nic_alone() -> None:
    selector = Selector()
    with running(selector) as runner, ExitStack() as stack:
        pipe = Pipe(stack, selector)
        seen: list[tuple[int, int]] = []

        async def main() -> None:
            done = asyncio.get_running_loop().create_future()

            def turn(events: list[tuple[int, int]]) -> bool:
                nonlocal seen
                seen = [event for event in events if event[0] == pipe.reads]
                os.read(pipe.reads, 100)
                asyncio.get_running_loop().call_soon_threadsafe(done.set_result, None)
                return False

            selector.turn = turn
            os.write(pipe.writes, b"x")
            async with asyncio.timeout(20):
                await done

        runner.run(main())
        assert seen == [(pipe.reads, select.EPOLLIN)]


def test_asyncio_gets_its_turn_while_the_nic_always_has_more() -> None:
    selector = Selector()
    turns = 0

    def turn(_: list[tuple[int, int]]) -> bool:
        nonlocal turns
        turns += 1
        return True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            reads, writes = os.pipe()
            stack.callback(os.close, reads)
            stack.callback(os.close, writes)
            heard: asyncio.Future[bytes] = loop.create_future()
            loop.add_reader(reads, lambda: heard.set_result(os.read(reads, 100)))
            stack.callback(loop.remove_reader, reads)
            selector.turn, selector.more = turn, True
            await asyncio.sleep(0.001)
            os.write(writes, b"request")
            async with asyncio.timeout(20):
                assert await heard == b"request"
            selector.turn, selector.more = None, False

    with running(selector) as runner:
        runner.run(main())
    assert turns


@pytest.mark.parametrize("more", [True, False])
def test_a_turn_that_is_wanted_comes_without_any_event(more: bool) -> None:
    with Selector() as selector:
        turns: list[list[tuple[int, int]]] = []

        def turn(events: list[tuple[int, int]]) -> bool:
            turns.append(events)
            return False

        selector.turn, selector.more = turn, more
        assert selector.select(0) == []
        assert turns == [[]] * more
        assert not selector.more


def test_what_asyncio_lets_go_of_is_no_longer_its_own() -> None:
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
