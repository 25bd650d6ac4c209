"""Log lines about a link's peers, each topic at most once a minute however often its event happens."""

from __future__ import annotations

from collections.abc import Callable

INTERVAL_S = 60.0

Log = Callable[[str], None]
"""Takes one line of a log."""


class RateLimitedLog:
    """Passes on the first report of a topic and then one every INTERVAL_S. Topics are few: a fixed number per peer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next: dict[object, float] = {}
        self._suppressed: dict[object, int] = {}

    def report(self, topic: object, text: str, now: float, times: int = 1) -> None:
        if now < self._next.get(topic, now):
            self._suppressed[topic] = self._suppressed.get(topic, 0) + times
            return
        before = self._suppressed.pop(topic, 0)
        self._next[topic] = now + INTERVAL_S
        self._log(f"{text} ({before} more since the last report)" if before else text)
