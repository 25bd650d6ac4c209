"""Shared byte budget for buffer growth and out-of-order data of all connections of a node.

Out-of-order data (reassembly.py) is charged because a peer can occupy much memory with few bytes. TCP may drop it,
since the peer keeps it until it is acknowledged (RFC 2018, section 8). So it yields to all other uses, the largest
queue first, and no queue takes more than its share from smaller ones.
"""

from __future__ import annotations

from typing import Protocol


class Queue(Protocol):
    """Out-of-order data of one connection."""

    def prune(self) -> None:
        """Drops all of it; its charge is already returned."""


class Budget:
    """Bytes that the buffers of all connections of a node may take beyond what each begins with."""

    __slots__ = ("_held", "_total", "free")

    def __init__(self, size: int) -> None:
        self.free = size
        self._held: dict[Queue, int] = {}
        """Charge of each queue, in the order of arrival."""
        self._total = 0

    def take(self, size: int) -> bool:
        """Takes `size` bytes if available, dropping queues if needed. Returns whether it did."""
        if size > self.free + self._total:
            return False
        while size > self.free:
            self._drop_largest()
        self.free -= size
        return True

    def give(self, size: int) -> None:
        self.free += size

    def hold(self, queue: Queue, size: int) -> bool:
        """Sets the charge of a queue to `size` bytes. Returns False if there is not enough; less always succeeds."""
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
        """Drops larger queues, if `size` is no more than an equal share."""
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
