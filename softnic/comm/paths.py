"""What the ranks of a communicator find out about their links, and agree on (softnic/collectives/schedule/paths.py).

With its 1st, 2nd, 4th, ... large all-reduce, later with each 64th, a rank sends all others what its NIC has measured.
All ranks make the same calls in the same order, so all change to the same plan with the same call: the first blocking
all-reduce after the reports, or the 32nd large one. That call waits for the reports. They were sent with a call that
the other ranks have made before, unless more than 32 nonblocking ones are in progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from softnic.collectives.schedule import EVEN, PathPlan, paths
from softnic.collectives.schedule.paths import LARGE_BYTES, PathReport
from softnic.comm import messages
from softnic.comm.errors import CommError
from softnic.comm.peer import Peer

MOST_RANKS = 32
"""With as many, reports are not exchanged, for which all ranks would connect, and blocks are even."""
_EVERY = 64
_LATER = 32
VARIABLE = "SOFTNIC_PATHS"


class PathProgress(Protocol):
    """What reports are sent through (progress.py)."""

    peers: dict[int, Peer]

    def post(self, peer: Peer, frame: messages.Frame) -> None: ...

    def run(self, done: Callable[[], bool]) -> None: ...

    def missing(self, peer: Peer, what: str) -> CommError: ...


class CommPaths:
    """The plan of rank `rank`, from what `measure` returns on each rank."""

    def __init__(self, rank: int, progress: PathProgress, measure: Callable[[], PathReport]) -> None:
        self.plan: PathPlan = EVEN
        """What schedules of this communicator are made for now."""
        self._rank = rank
        self._progress = progress
        self._measure = measure
        self._takes_part = 2 <= len(progress.peers) < MOST_RANKS
        self._calls = 0
        """Large all-reduces so far."""
        self._own: messages.Paths | None = None
        """What this rank has reported, until the plan is made."""

    def begin(self, *, blocking: bool) -> None:
        """Begin an all-reduce: change the plan, if it is this call that does so. Raises CommError."""
        own = self._own
        if own is None or (not blocking and self._calls - own.number < _LATER):
            return
        self._progress.run(lambda: self._have_reported(own.number))
        self._own = None
        reports = {self._rank: own}
        reports |= {peer.rank: peer.reports.pop(own.number) for peer in self._progress.peers.values()}
        if any(not report.wanted for report in reports.values()):
            self.plan = EVEN
            return
        size = len(reports)
        in_order = [PathReport(reports[rank].rate, _each(reports[rank].rtts, size)) for rank in range(size)]
        self.plan = paths.plan(in_order, self.plan)

    def count(self, nbytes: int) -> None:
        """Count an all-reduce of `nbytes`, and report if it is time."""
        if nbytes < LARGE_BYTES or not self._takes_part:
            return
        self._calls += 1
        if self._own is not None or (self._calls & (self._calls - 1) and self._calls % _EVERY):
            return
        measured = self._measure()
        wanted = os.environ.get(VARIABLE, "") != "off"
        self._own = messages.Paths(self._calls, measured.rate, list(measured.rtts), wanted)
        for peer in self._progress.peers.values():
            self._progress.post(peer, self._own)

    def _have_reported(self, number: int) -> bool:
        for peer in self._progress.peers.values():
            if number not in peer.reports:
                if peer.absent:
                    raise self._progress.missing(peer, "taking part")
                return False
        return True


def _each(rtts: list[float], size: int) -> tuple[float, ...]:
    """Return the round trips to `size` ranks; unknown ones as 0."""
    return tuple(rtts) if len(rtts) == size else (0.0,) * size
