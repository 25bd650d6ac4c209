"""Which ranks are still worth waiting for while the ranks of a job join.

A rank that has joined is a connection, and its end is seen on that. Of one that has not, the kernel knows whether its
process runs, if it runs on this host: the variables by which a launcher says who is which rank are in /proc. A rank
whose process runs may join as late as it likes. One whose process was seen and has ended joins no more. Of a rank that
was never seen (another host, or not started), nothing is known: it has as long as the job allows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")
_SHORTEST_S = 0.5
_LONGEST_S = 4.0
"""Between two looks at the processes: a rank's end is noticed within 5 s."""

Living = Callable[[], Collection[int]]
"""The ranks that have a process on this host now."""


class Presence:
    """Decides how long to wait for ranks that have not joined.

    Parameters
    ----------
    timeout_s
        For ranks of which no process is seen.
    living
        None: no rank's process can be seen.
    clock
        Returns seconds.
    """

    def __init__(self, timeout_s: float, living: Living | None = None, clock: Callable[[], float] = time.monotonic):
        self.timeout_s = timeout_s
        self._living = living
        self._clock = clock
        self._seen: set[int] = set()
        self._now: Collection[int] = ()
        self.begin()

    def begin(self) -> None:
        """Another step begins, for which ranks have as long again."""
        self._began = self._next_look = self._clock()
        self._interval = _SHORTEST_S

    def exited(self, missing: Iterable[int]) -> dict[int, str]:
        """The missing ranks whose processes have ended, and what to say of them."""
        self._look()
        return {
            rank: f"rank {rank} exited without joining: it made no MPI call, or ended in its first one"
            for rank in missing
            if rank in self._seen and rank not in self._now
        }

    def overdue(self, missing: Iterable[int]) -> list[int]:
        """The missing ranks that have had their time, and of which no process is seen."""
        self._look()
        late = self._clock() - self._began >= self.timeout_s
        return [rank for rank in missing if late and rank not in self._now]

    def wait_s(self) -> float:
        """After how many seconds `exited` or `overdue` may say something new."""
        now, late_at = self._clock(), self._began + self.timeout_s
        moments = [late_at] if now < late_at else []
        if self._living is not None:
            moments.append(self._next_look)
        return max(0.01, min(moments, default=now + _LONGEST_S) - now)

    def _look(self) -> None:
        if self._living is None or self._clock() < self._next_look:
            return
        self._now = self._living()
        self._seen.update(self._now)
        self._interval = min(2 * self._interval, _LONGEST_S)
        self._next_look = self._clock() + self._interval


class RankProcesses:
    """The ranks that have a process on this host.

    Parameters
    ----------
    rank_name
        The variable by which the launcher says which rank a process is.
    names
        The variables that tell a job from another one; all processes of a job have the values of this process. What a
        program has changed since its start does not count.
    """

    def __init__(self, rank_name: str, names: Iterable[str]) -> None:
        self._rank = os.fsencode(rank_name)
        own: dict[bytes, bytes] = {}
        with suppress(OSError):
            own = _variables((_PROCESSES / "self" / "environ").read_bytes())
        self._job = {name: own[name] for name in map(os.fsencode, names) if own.get(name)}
        self.known = bool(self._job) and self._rank in own
        """Whether processes of this job can be recognized."""

    def __call__(self) -> set[int]:
        found = set()
        for process in _PROCESSES.iterdir():
            if process.name.isdecimal():
                with suppress(OSError, ValueError):  # it has ended, or is another user's, or no rank's
                    found.add(self._rank_of(_variables((process / "environ").read_bytes())))
        return found

    def _rank_of(self, variables: Mapping[bytes, bytes]) -> int:
        """Raises ValueError for a process of another job."""
        if any(variables.get(name) != value for name, value in self._job.items()):
            raise ValueError("it belongs to another job")
        return int(variables.get(self._rank, b""))


def _variables(environ: bytes) -> dict[bytes, bytes]:
    return {name: value for name, _, value in (entry.partition(b"=") for entry in environ.split(b"\0"))}
