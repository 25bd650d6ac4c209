"""Registered memory that stands in for buffers which are not registered, while a NIC works on them.

Pieces are cut from arenas, the smallest hole that fits first, and go back to where they were cut: many small requests
share one arena, so that they do not need a descriptor each. In use there is as much as the buffers take that it stands
for; beside that, arenas of up to IDLE_BYTES in all are kept for later.
"""

from __future__ import annotations

import threading
from bisect import insort

import numpy as np

from softnic.comm.buffers import Array
from softnic.ipc import regions
from softnic.ipc.regions import Region

ARENA_BYTES = 4 << 20
"""Of an arena, at least."""
IDLE_BYTES = 256 << 20
_GRAIN = 64
"""Pieces are whole cache lines."""


class _Arena:
    """One registered array, and the holes in it: (start, end) by start, never next to each other."""

    def __init__(self, size: int) -> None:
        self.memory: Array = regions.empty(size, np.uint8)
        place = regions.find(self.memory.data)
        assert place is not None
        self.region = place.region
        self.holes = [(0, size)]

    @property
    def idle(self) -> bool:
        return self.holes == [(0, self.memory.size)]

    def fill(self, hole: tuple[int, int], size: int) -> None:
        start, end = hole
        self.holes.remove(hole)
        if start + size < end:
            insort(self.holes, (start + size, end))

    def empty(self, start: int, end: int) -> None:
        before = next((hole for hole in self.holes if hole[1] == start), None)
        behind = next((hole for hole in self.holes if hole[0] == end), None)
        for hole in (before, behind):
            if hole is not None:
                self.holes.remove(hole)
                start, end = min(start, hole[0]), max(end, hole[1])
        insort(self.holes, (start, end))


class Piece:
    """Scratch for one buffer, until it is given back."""

    __slots__ = ("_arena", "_size", "bytes", "offset")

    def __init__(self, arena: _Arena, start: int, size: int, wanted: int) -> None:
        self._arena = arena
        self._size = size
        self.offset = start
        self.bytes: Array = arena.memory[start : start + wanted]

    @property
    def region(self) -> Region:
        return self._arena.region

    def free(self) -> _Arena:
        self._arena.empty(self.offset, self.offset + self._size)
        return self._arena


class Scratch:
    """All that a communicator has. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arenas: list[_Arena] = []
        """The longest unused first."""

    @property
    def held_bytes(self) -> int:
        """Of all arenas, in use or not."""
        return sum(arena.memory.size for arena in self._arenas)

    def take(self, size: int) -> Piece:
        """`size` bytes, with any contents. Raises OSError where the system has no memory or descriptor left."""
        whole = max(_GRAIN, -(-size // _GRAIN) * _GRAIN)
        with self._lock:
            fitting = [
                (end - start, index, start)
                for index, arena in enumerate(self._arenas)
                for start, end in arena.holes
                if end - start >= whole
            ]
            if fitting:
                length, index, start = min(fitting)
                arena = self._arenas[index]
            else:
                arena = _Arena(max(ARENA_BYTES, whole))
                self._arenas.append(arena)
                start, length = 0, arena.memory.size
            arena.fill((start, start + length), whole)
            return Piece(arena, start, whole, size)

    def clear(self) -> None:
        """Releases all memory, as soon as no piece of it is in use."""
        with self._lock:
            self._arenas.clear()

    def give(self, piece: Piece) -> None:
        """The NIC is done with it."""
        with self._lock:
            arena = piece.free()
            if not arena.idle or arena not in self._arenas:
                return
            self._arenas.remove(arena)
            self._arenas.append(arena)
            idle = [each for each in self._arenas if each.idle]
            excess = sum(each.memory.size for each in idle) - IDLE_BYTES
            for each in idle:
                if excess <= 0:
                    break
                excess -= each.memory.size
                self._arenas.remove(each)
