"""Scratch: pieces that never overlap, memory that is used again, and not kept without limit."""

from __future__ import annotations

import random

import pytest

from softnic.comm import scratch
from softnic.comm.scratch import ARENA_BYTES, Allocation, Scratch
from softnic.ipc import regions as memory


def test_a_piece_is_registered_memory_of_that_size() -> None:
    pool = Scratch()
    for size in (0, 1, 100, 5 << 20):
        piece = pool.allocate(size)
        assert piece.bytes.size == size
        place = memory.find(piece.bytes.data)
        if size:
            assert place is not None
            assert (place.region, place.offset) == (piece.region, piece.offset)


def test_pieces_do_not_overlap_and_all_memory_comes_back() -> None:
    pool, chance = Scratch(), random.Random(1)
    held: list[tuple[Allocation, int]] = []
    for step in range(2000):
        if held and chance.random() < 0.5:
            piece, mark = held.pop(chance.randrange(len(held)))
            assert (piece.bytes == mark).all()
            pool.free(piece)
        else:
            piece = pool.allocate(chance.choice((1, 64, 1000, 100_000, 1_000_000)))
            piece.bytes[:] = step % 251
            held.append((piece, step % 251))
    for piece, mark in held:
        assert (piece.bytes == mark).all()
        pool.free(piece)
    assert all(arena.is_idle for arena in pool._arenas)


def test_memory_is_used_again() -> None:
    pool = Scratch()
    for _ in range(10):
        pieces = [pool.allocate(100_000) for _ in range(10)]
        assert pool.held_bytes == ARENA_BYTES
        for piece in pieces:
            pool.free(piece)


def test_what_is_idle_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "IDLE_BYTES", 3 * ARENA_BYTES)
    pool = Scratch()
    pieces = [pool.allocate(ARENA_BYTES) for _ in range(5)]
    assert pool.held_bytes == 5 * ARENA_BYTES
    for piece in pieces:
        pool.free(piece)
    assert pool.held_bytes == 3 * ARENA_BYTES
