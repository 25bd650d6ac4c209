"""Decides how long the ranks that have not joined yet are waited for.

A rank that has joined has a connection, whose end is noticed. For one that has not, and that runs on this host, /proc
shows whether its process lives: launchers identify ranks by environment variables. A rank whose process lives may join
at any time. One whose process was seen and has ended will not join. A rank that was never seen is on another host or
was not started: it has until the timeout.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
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
        return [rank for rank in missing if self.expired and rank not in self._alive]

    @property
    def expired(self) -> bool:
        """Whether this step has taken longer than the timeout."""
        return self._clock() - self._began >= self.timeout_s

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


def local_ranks(rank_variable: str, job_variables: Iterable[str]) -> Callable[[], set[int]] | None:
    """Return a function that returns the ranks of this job with a process on this host, for Presence.

    Processes are identified by the variables that they started with: all of a job have the values of this process.
    Returns None if this process has none of these variables.

    Parameters
    ----------
    rank_variable
        Holds the rank of a process.
    job_variables
        Identify the job.
    """
    own: dict[bytes, bytes] = {}
    with suppress(OSError):
        own = _variables(_PROCESSES / "self")
    name = os.fsencode(rank_variable)
    job = {each: own[each] for each in map(os.fsencode, job_variables) if own.get(each)}
    if not job or name not in own:
        return None

    def living() -> set[int]:
        found = set()
        for process in _PROCESSES.iterdir():
            if process.name.isdecimal():
                with suppress(OSError, ValueError):  # it has ended, belongs to another user, or is not a rank
                    variables = _variables(process)
                    if job.items() <= variables.items():
                        found.add(int(variables.get(name, b"")))
        return found

    return living


def _variables(process: Path) -> dict[bytes, bytes]:
    """Return the environment that a process started with. Raises OSError."""
    entries = (process / "environ").read_bytes().split(b"\0")
    return {name: value for name, _, value in (entry.partition(b"=") for entry in entries)}
