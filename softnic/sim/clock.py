"""Virtual time: a clock that jumps from event to event, and the loop that runs what acts on it.

An actor has `advance(now)` and `next_time()`. At one instant the clock works in rounds: it collects the actors that are
due, lets them act in their order, and repeats until none is due. Then it jumps to the earliest time that an actor or a
scheduled event asks for. No real clock is read, so a run is repeatable to the bit.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

MAX_ROUNDS = 100_000
"""Rounds at one instant after which the clock gives up: an actor asks to be called again without making progress."""


class Stalled(TimeoutError):
    """The awaited condition did not become true."""


class Actor(Protocol):
    """What a clock runs: a node, a link, an application."""

    def advance(self, now: float) -> None:
        """Do what is due at `now`."""

    def next_time(self) -> float | None:
        """Return when the actor is due: infinity for "only when another actor makes it due", None for "whenever another
        actor acts"."""


class VirtualClock:
    """A clock whose time passes only between events.

    Parameters
    ----------
    now : float
        The time at the start, in seconds.
    granularity_s : float
        Wake-ups happen only at multiples of this, as with a coarse timer; 0: exactly on time.
    """

    def __init__(self, now: float = 0.0, *, granularity_s: float = 0.0) -> None:
        self.now = now
        self._granularity_s = granularity_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def events_pending(self) -> bool:
        """Whether scheduled events have not happened yet."""
        return bool(self._events)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Schedule an event. Events of the same time happen in the order of their scheduling."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def run(self, actors: Sequence[Actor], until: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Run the actors until a condition holds at the end of an instant.

        Raises
        ------
        Stalled
            The condition does not hold after `limit_s` virtual seconds, or nothing is left to happen.
        """
        end = self.now + limit_s
        if self.run_until(actors, until, end):
            return
        if self._earliest([actor.next_time() for actor in actors]) == math.inf:
            raise Stalled(f"nothing is left to happen at {self.now:.6f} s and the condition does not hold")
        raise Stalled(f"the condition does not hold after {limit_s:g} virtual seconds")

    def run_for(self, actors: Sequence[Actor], duration_s: float) -> None:
        """Run the actors for a time, whether something happens or not."""
        end = self.now + duration_s
        self.run_until(actors, lambda: False, end)
        self.now = end

    def run_until(self, actors: Sequence[Actor], done: Callable[[], bool], end: float) -> bool:
        """Run the actors until a condition holds at the end of an instant, or until `end`.

        Returns
        -------
        bool
            Whether the condition holds. If not, the clock shows the last instant at which something happened.
        """
        while True:
            wake = self._instant(actors)
            if done():
                return True
            if wake > end or wake == math.inf:
                return False
            self.now = wake

    def _instant(self, actors: Sequence[Actor]) -> float:
        """Run all rounds of this instant. Returns the time of the next one."""
        for turn in range(MAX_ROUNDS):
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            times = [actor.next_time() for actor in actors]
            wake = self._earliest(times)
            if turn and wake > self.now:
                return wake
            for actor, time in zip(actors, times, strict=True):
                if time is None or time <= self.now:
                    actor.advance(self.now)
        raise Stalled(f"time stands still at {self.now:.6f} s: an actor keeps asking for this instant")

    def _earliest(self, times: Sequence[float | None]) -> float:
        """Return the next instant, given the times that actors ask for; infinity if there is none."""
        wake = min([time for time in times if time is not None], default=math.inf)
        if self._events:
            wake = min(wake, self._events[0][0])
        if self._granularity_s and self.now < wake < math.inf:
            wake = max(wake, math.ceil(wake / self._granularity_s) * self._granularity_s)
        return wake
