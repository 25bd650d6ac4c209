"""Decides how long the ranks that have not joined yet are waited for.

A rank that has joined has a connection, whose end is noticed. For one that has not, and that runs on this host, /proc
shows whether its process lives: launchers identify ranks by environment variables. A rank whose process lives may join
at any time. One whose process was seen and has ended will not join. A rank that was never seen is on another host or
was not started: it has until the timeout.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")
_MIN_INTERVAL_S = 0.5
_MAX_INTERVAL_S = 4.0
"""Between two scans of the processes. The end of a rank is noticed within 5 s."""


class Presence:
    """Tracks which missing ranks may still join.

    Parameters
    ----------
    timeout_s
        Time limit for ranks whose process was never seen.
    living
        Returns the ranks that have a process on this host. None: the processes of ranks are not visible.
    clock
        Returns seconds.
    """

    def __init__(
        self,
        timeout_s: float,
        living: Callable[[], Collection[int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_s = timeout_s
        self._living = living
        self._clock = clock
        self._seen: set[int] = set()
        self._alive: Collection[int] = ()
        self.begin()

    def begin(self) -> None:
        """Restart the timeout: a new step begins."""
        self._began = self._next_scan = self._clock()
        self._interval = _MIN_INTERVAL_S

    def exited(self, missing: Iterable[int]) -> dict[int, str]:
        """Return the missing ranks whose processes have ended, each with the text of an error."""
        self._scan()
        return {
            rank: f"rank {rank} exited without joining: it made no MPI call, or ended in its first one"
            for rank in missing
            if rank in self._seen and rank not in self._alive
        }

    def overdue(self, missing: Iterable[int]) -> list[int]:
        """Return the missing ranks whose timeout has expired and whose processes are not visible."""
        self._scan()
        expired = self._clock() - self._began >= self.timeout_s
        return [rank for rank in missing if expired and rank not in self._alive]

    def wait_s(self) -> float:
        """Return the seconds after which `exited` or `overdue` may change."""
        now, expires_at = self._clock(), self._began + self.timeout_s
        times = [expires_at] if now < expires_at else []
        if self._living is not None:
            times.append(self._next_scan)
        return max(0.01, min(times, default=now + _MAX_INTERVAL_S) - now)

    def _scan(self) -> None:
        if self._living is None or self._clock() < self._next_scan:
            return
        self._alive = self._living()
        self._seen.update(self._alive)
        self._interval = min(2 * self._interval, _MAX_INTERVAL_S)
        self._next_scan = self._clock() + self._interval


class LocalRanks:
    """Finds the ranks of this job that have a process on this host, by the variables that processes started with.

    Parameters
    ----------
    rank_variable
        Holds the rank of a process.
    job_variables
        Identify the job: all its processes have the values of this process.
    """

    def __init__(self, rank_variable: str, job_variables: Iterable[str]) -> None:
        self._rank = os.fsencode(rank_variable)
        own: dict[bytes, bytes] = {}
        with suppress(OSError):
            own = _variables((_PROCESSES / "self" / "environ").read_bytes())
        self._job = {name: own[name] for name in map(os.fsencode, job_variables) if own.get(name)}
        self.known = bool(self._job) and self._rank in own
        """True if processes of this job can be identified."""

    def __call__(self) -> set[int]:
        found = set()
        for process in _PROCESSES.iterdir():
            if process.name.isdecimal():
                with suppress(OSError, ValueError):  # it has ended, belongs to another user, or is not a rank
                    found.add(self._rank_of(_variables((process / "environ").read_bytes())))
        return found

    def _rank_of(self, variables: Mapping[bytes, bytes]) -> int:
        """Return the rank of a process. Raises ValueError if it belongs to another job."""
        if any(variables.get(name) != value for name, value in self._job.items()):
            raise ValueError("the process belongs to another job")
        return int(variables.get(self._rank, b""))


def _variables(environ: bytes) -> dict[bytes, bytes]:
    return {name: value for name, _, value in (entry.partition(b"=") for entry in environ.split(b"\0"))}
