"""Busy polling: events that are there are found, and polls that find none become rare."""

from __future__ import annotations

import math
import os
import select
from collections.abc import Iterator

import pytest

from softnic._native import ffi, lib

SKIPPED = (1, 2, 4, 8, 16, 32, 64, 64)
"""Waits without a poll that follow polls without events."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    yield reads, writes
    os.close(reads)
    os.close(writes)


def test_polls_without_events_become_rare_until_one_finds_some(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    with select.epoll() as epoll:
        epoll.register(reads, select.EPOLLIN)
        turn = ffi.new("sn_turn *")
        turn.epoll, turn.poll_s = epoll.fileno(), 1e-6
        for skipped in SKIPPED:
            assert lib.sn_turn_poll(turn, math.inf) == 0
            assert turn.polls_to_skip == skipped
            os.write(writes, b"x")
            assert [lib.sn_turn_poll(turn, math.inf) for _ in range(skipped)] == [0] * skipped
            os.read(reads, 1)
        os.write(writes, b"x")
        for _ in range(2):
            assert lib.sn_turn_poll(turn, math.inf) == 1
            assert (turn.fds[0], turn.masks[0], turn.polls_to_skip) == (reads, select.EPOLLIN, 0)


def test_a_poll_fails_as_the_wait_does() -> None:
    turn = ffi.new("sn_turn *")
    turn.epoll, turn.poll_s = -1, 1.0
    assert lib.sn_turn_poll(turn, math.inf) < 0
