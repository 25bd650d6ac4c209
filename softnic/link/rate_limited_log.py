"""What a link has to tell people: once when it begins, and then no more than once a minute however often it happens."""

from __future__ import annotations

from collections.abc import Callable

INTERVAL_S = 60.0

Log = Callable[[str], None]
"""Takes a line for the log."""


class RateLimitedLog:
    """The topics are the link's own, as many at most as it has peers and things to say of them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next: dict[object, float] = {}
        self._kept: dict[object, int] = {}

    def report(self, topic: object, text: str, now: float, times: int = 1) -> None:
        if now < self._next.get(topic, now):
            self._kept[topic] = self._kept.get(topic, 0) + times
            return
        before = self._kept.pop(topic, 0)
        self._next[topic] = now + INTERVAL_S
        self._log(f"{text} ({before} times more since this was last said)" if before else text)
