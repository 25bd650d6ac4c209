"""Registered memory that stands in for buffers which are not registered, while a NIC works on them.

Allocations are cut from arenas, the smallest hole that fits first, and returned to where they were cut. Many small
requests share an arena, so that they do not need a file descriptor each. Idle arenas are kept, up to IDLE_BYTES.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from softnic.collectives.elements import Array
from softnic.ipc import regions
from softnic.ipc.regions import Region

ARENA_BYTES = 4 << 20
"""Minimum size of an arena."""
IDLE_BYTES = 256 << 20
_GRAIN = 64
"""Allocations are whole cache lines."""


class _Arena:
    """One registered array, and the holes in it: (start, end), sorted, never adjacent."""

    def __init__(self, size: int, prepare: Callable[[Array], object]) -> None:
        self.memory: Array = regions.empty(size, np.uint8)
        prepare(self.memory)
        place = regions.find(self.memory.data)
        assert place is not None
        self.region = place.region
        self.holes = [(0, size)]

    @property
    def is_idle(self) -> bool:
        return self.holes == [(0, self.memory.size)]

    def allocate(self, hole: tuple[int, int], size: int) -> None:
        start, end = hole
        self.holes.remove(hole)
        if start + size < end:
            insort(self.holes, (start + size, end))

    def free(self, start: int, end: int) -> None:
        before = next((hole for hole in self.holes if hole[1] == start), None)
        behind = next((hole for hole in self.holes if hole[0] == end), None)
        for hole in (before, behind):
            if hole is not None:
                self.holes.remove(hole)
                start, end = min(start, hole[0]), max(end, hole[1])
        insort(self.holes, (start, end))


class Allocation(NamedTuple):
    """Scratch memory for one buffer, until it is freed."""

    arena: _Arena
    offset: int
    end: int
    bytes: Array

    @property
    def region(self) -> Region:
        return self.arena.region


class Scratch:
    """The scratch memory of a communicator. Thread-safe. `prepare` is called with each new array."""

    def __init__(self, prepare: Callable[[Array], object] = lambda _: None) -> None:
        self._prepare = prepare
        self._lock = threading.Lock()
        self._arenas: list[_Arena] = []
        """Least recently used first."""

    @property
    def held_bytes(self) -> int:
        """Size of all arenas, idle ones included."""
        return sum(arena.memory.size for arena in self._arenas)

    def allocate(self, size: int) -> Allocation:
        """Return `size` bytes with undefined contents. Raises OSError without memory or file descriptors."""
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
                arena = _Arena(max(ARENA_BYTES, whole), self._prepare)
                self._arenas.append(arena)
                start, length = 0, arena.memory.size
            arena.allocate((start, start + length), whole)
            return Allocation(arena, start, start + whole, arena.memory[start : start + size])

    def clear(self) -> None:
        """Release each arena as soon as nothing of it is in use."""
        with self._lock:
            self._arenas.clear()

    def free(self, allocation: Allocation) -> None:
        """Take an allocation back that the NIC no longer uses."""
        with self._lock:
            arena = allocation.arena
            arena.free(allocation.offset, allocation.end)
            if not arena.is_idle or arena not in self._arenas:
                return
            self._arenas.remove(arena)
            self._arenas.append(arena)
            idle = [each for each in self._arenas if each.is_idle]
            excess = sum(each.memory.size for each in idle) - IDLE_BYTES
            for each in idle:
                if excess <= 0:
                    break
                excess -= each.memory.size
                self._arenas.remove(each)
