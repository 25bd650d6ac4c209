"""The memory that all connections of a node share.

What a buffer has grown by is charged here, and what came out of order (reassembly.py): its memory is what a peer makes
of few bytes. TCP may drop that again, since the peer keeps it until it is acknowledged (RFC 2018, section 8). So it
yields to everything else, the largest queue first, and no queue takes more than its share from smaller ones.
"""

from __future__ import annotations

from typing import Protocol


class Queue(Protocol):
    """What one connection has received out of order."""

    def prune(self) -> None:
        """Drops all of it. The budget has its charge back already."""


class Budget:
    """Bytes that the buffers of all connections of a node may take beyond what each begins with."""

    __slots__ = ("_held", "_total", "free")

    def __init__(self, size: int) -> None:
        self.free = size
        self._held: dict[Queue, int] = {}
        """Charged for each queue, in the order in which they came."""
        self._total = 0

    def take(self, size: int) -> bool:
        """Whether there is so much; if so, it is taken. Queues are dropped for it."""
        if size > self.free + self._total:
            return False
        while size > self.free:
            self._drop_largest()
        self.free -= size
        return True

    def give(self, size: int) -> None:
        self.free += size

    def hold(self, queue: Queue, size: int) -> bool:
        """Charges a queue for `size` bytes in all, instead of what it was charged before. Returns whether there is so
        much; less is always possible."""
        before = self._held.get(queue, 0)
        if size - before > self.free and not self._make_room(size, before):
            return False
        self.free -= size - before
        self._total += size - before
        if size:
            self._held[queue] = size
        else:
            self._held.pop(queue, None)
        return True

    def _make_room(self, size: int, before: int) -> bool:
        """Drops larger queues, if one that has `before` has no more than an equal share with `size`."""
        queues = len(self._held) + (not before)
        if size * queues > self.free + self._total:
            return False
        while size - before > self.free:
            self._drop_largest()
        return True

    def _drop_largest(self) -> None:
        largest = max(self._held, key=self._held.__getitem__)
        size = self._held.pop(largest)
        self._total -= size
        self.free += size
        largest.prune()
