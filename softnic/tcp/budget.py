"""Shared byte budget for buffer growth and out-of-order data of all connections of a node.

Out-of-order data (reassembly.py) is charged because a peer can occupy much memory with few bytes. TCP may drop it,
since the peer keeps it until it is acknowledged (RFC 2018, section 8). So it yields to all other uses, the largest
queue first, and no queue takes more than its share from smaller ones.

The numbers are C's (native/tcp/reassembly.h), which charges out-of-order data where the budget suffices.
"""

from __future__ import annotations

from typing import Protocol

from softnic._native import ffi


class Queue(Protocol):
    """Out-of-order data of one connection."""

    @property
    def charge(self) -> int:
        """Bytes taken from the budget."""

    def prune(self) -> None:
        """Drops all of it, and returns its charge."""


class Budget:
    """Bytes that the buffers of all connections of a node may take beyond what each begins with."""

    __slots__ = ("_queues", "c")

    def __init__(self, size: int) -> None:
        self.c = ffi.new("sn_budget *", {"free": size})
        self._queues: dict[Queue, None] = {}

    @property
    def free(self) -> int:
        return int(self.c.free)

    def add(self, queue: Queue) -> None:
        """Has a queue yield to others."""
        self._queues[queue] = None

    def remove(self, queue: Queue) -> None:
        """The connection of a queue, which is empty, has ended."""
        self._queues.pop(queue, None)

    def take(self, size: int) -> bool:
        """Takes `size` bytes if available, dropping queues if needed. Returns whether it did."""
        if size > self.c.free + self.c.held:
            return False
        while size > self.c.free:
            self._drop_largest()
        self.c.free -= size
        return True

    def give(self, size: int) -> None:
        self.c.free += size

    def make_room(self, queue: Queue, size: int) -> bool:
        """Drops larger queues until `queue` may be charged with `size` bytes, if an equal share is as large."""
        queues = sum(1 for each in self._queues if each.charge or each is queue)
        if size * queues > self.c.free + self.c.held:
            return False
        while size - queue.charge > self.c.free:
            self._drop_largest()
        return True

    def _drop_largest(self) -> None:
        max(self._queues, key=lambda queue: queue.charge).prune()
