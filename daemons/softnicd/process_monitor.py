"""Programs that stand still: stopped by SIGSTOP or Ctrl-Z, which nobody who waits for them can see.

A program that dies lets go of its streams, and the kernel tells the NIC. One that is stopped keeps them, and its peers
would wait for as long as it stands. So a NIC looks at the state of each process that has streams (proc(5)), and ends
the streams of one that has been stopped for too long, as if it had died. A program under a debugger (state t) counts
as running: whoever debugs wants to look at it.

Only stops are seen so. A program that computes, or waits for something else, may take as long as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 0.5
"""Between two looks."""


def state_of(pid: int) -> str:
    """The letter of proc(5)'s stat; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


@dataclass(slots=True)
class _Stopped:
    looked: float
    stood_s: float


class Programs:
    """`state` says how a process is, as `state_of`."""

    def __init__(self, patience_s: float, state: Callable[[int], str] = state_of) -> None:
        self._patience_s = patience_s
        self._state = state
        self._stopped: dict[int, _Stopped] = {}

    def look(self, pids: Iterable[int], now: float) -> list[tuple[int, float]]:
        """To be called every EVERY_S. Returns those that have stood still for too long, and for how long; again at
        each look, for as long as they stand."""
        before, self._stopped = self._stopped, {}
        lost = []
        for pid in set(pids):
            if pid and self._state(pid) == "T":
                stopped = before.get(pid) or _Stopped(now, 0.0)
                stopped.stood_s += min(now - stopped.looked, 2 * EVERY_S)  # if the NIC stood still too, less
                stopped.looked = now
                self._stopped[pid] = stopped
                if stopped.stood_s >= self._patience_s - EVERY_S:
                    lost.append((pid, stopped.stood_s))
        return lost
