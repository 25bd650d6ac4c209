"""The nodes of a cluster as one actor of a virtual clock, which looks at those alone that are due.

A thousand nodes of which a few are due at an instant cost what these cost. Nodes that are due at once act in their
order, each once a round, as a clock has its actors act (clock.py).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Protocol


class Timed(Protocol):
    """A node: an actor that is due at a time of its own, which is reported where something else makes it due."""

    def advance(self, now: float) -> None: ...

    def next_time(self) -> float: ...


class Agenda:
    """Nodes by the times at which they are due. All times are seconds of the virtual clock."""

    def __init__(self) -> None:
        self._nodes: list[Timed] = []
        self._due: list[float] = []
        """By node."""
        self._queue: list[tuple[float, int]] = []
        """Times and nodes; entries whose time is not the node's any more are passed over."""

    def reporter(self, index: int) -> Callable[[float], None]:
        """Return what makes node `index` due at a time; before `add`, it does nothing."""

        def report(time: float) -> None:
            if index < len(self._nodes):
                self._set(index, time)

        return report

    def add(self, node: Timed) -> None:
        """Add the next node."""
        self._nodes.append(node)
        self._due.append(math.inf)
        self._set(len(self._nodes) - 1, node.next_time())

    def advance(self, now: float) -> None:
        """Have each node act that is due, once."""
        due = set()
        while self._queue and self._queue[0][0] <= now:
            time, index = heapq.heappop(self._queue)
            if self._due[index] == time:
                due.add(index)
        for index in sorted(due):
            node = self._nodes[index]
            node.advance(now)
            self._set(index, node.next_time(), again=True)

    def next_time(self) -> float:
        """Return when the first node is due; infinity: none is."""
        while self._queue and self._due[self._queue[0][1]] != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else math.inf

    def _set(self, index: int, time: float, *, again: bool = False) -> None:
        if time == self._due[index] and not again:
            return
        self._due[index] = time
        if time < math.inf:
            heapq.heappush(self._queue, (time, index))
