"""What `softnic run --churn` does to a job: which node is hit when, and how. A seed fixes it; time is an argument."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

CUT_S = 8.0
"""How long a node is cut off: longer than the others wait for it (`peer_timeout`)."""
_RESTART_S = (0.5, 2.0)
"""From the end of a rank to its new process: between these."""
_CUTS = 0.25
"""Share of the events that cut a node off; the others kill its process."""

Kind = Literal["kill", "start", "cut", "mend"]


@dataclass(frozen=True, order=True)
class ChurnEvent:
    """Something that happens to a node."""

    at: float
    kind: Kind
    rank: int


class Churn:
    """The events of a job, from `start` on.

    Parameters
    ----------
    ranks : int
        Number of ranks. Never are half of them hit at the same time, and one alone is spared.
    period_s : float
        Mean time between two events that hit a node.
    seed : int or None
        Of all choices; None: others in each run.
    """

    def __init__(self, ranks: int, period_s: float, seed: int | None) -> None:
        self._chance = random.Random(seed)
        self._ranks, self.period_s = ranks, period_s
        self._hit: set[int] = set()
        """Nodes that are down or cut off."""
        self._later: list[ChurnEvent] = []
        self._next = math.inf

    @property
    def is_started(self) -> bool:
        return self._next < math.inf

    def start(self, now: float) -> None:
        """Begin, at a time on the clock of `due`."""
        self._next = now + self._interval()

    def next_time(self) -> float:
        """Return when `due` has something."""
        return min(self._next, self._later[0].at if self._later else math.inf)

    def due(self, now: float, running: Collection[int]) -> list[ChurnEvent]:
        """Return what happens now, in order.

        Parameters
        ----------
        now : float
            The time.
        running : collection of int
            Ranks whose processes have not ended by themselves.
        """
        found = []
        while self._later and self._later[0].at <= now:
            event = heapq.heappop(self._later)
            self._hit.discard(event.rank)
            found.append(event)
        if now >= self._next:
            self._next = now + self._interval()
            candidates = sorted(set(running) - self._hit)
            if candidates and 2 * (len(self._hit) + 1) < self._ranks + (self._ranks == 2):
                found += self._strike(now, self._chance.choice(candidates))
        return found

    def _interval(self) -> float:
        return self.period_s * self._chance.uniform(0.5, 1.5)

    def _strike(self, now: float, rank: int) -> list[ChurnEvent]:
        self._hit.add(rank)
        if self._chance.random() < _CUTS:
            heapq.heappush(self._later, ChurnEvent(now + CUT_S, "mend", rank))
            return [ChurnEvent(now, "cut", rank)]
        heapq.heappush(self._later, ChurnEvent(now + self._chance.uniform(*_RESTART_S), "start", rank))
        return [ChurnEvent(now, "kill", rank)]


TEXTS: dict[Kind, str] = {
    "kill": "rank {} is killed",
    "start": "rank {} starts again",
    "cut": f"node {{}} is cut off for {CUT_S:g} s",
    "mend": "node {} is back",
}
"""What is said about events."""
