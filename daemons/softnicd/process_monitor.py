"""Process monitor: finds applications that have been stopped (SIGSTOP, Ctrl-Z) for too long.

An application that exits closes its streams, and the kernel reports that. A stopped one keeps them open, and its peers
would wait until it continues. So a NIC reads the state of each process that has streams (proc(5)), and ends the streams
of a process that has been stopped for longer than the peer timeout, as if it had exited. A process that is traced by a
debugger (state t) counts as running.

Only stops are detected. An application that computes, or waits for something else, may take any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

INTERVAL_S = 0.5
"""Between two polls."""


_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ProcessUse(NamedTuple):
    state: str = ""
    """As a letter (proc(5)); empty where there is no such process."""
    cpu_s: float = 0.0


def process_of(pid: int) -> ProcessUse:
    """The state of a process, and its CPU time so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return ProcessUse(fields[0], (int(fields[11]) + int(fields[12])) * _TICK_S)
    except (OSError, IndexError, ValueError):
        return ProcessUse()


def state_of(pid: int) -> str:
    """The state of a process as a letter; empty where there is no such process."""
    return process_of(pid).state


@dataclass(slots=True)
class _Stopped:
    polled: float
    stopped_s: float


class ProcessMonitor:
    """The stopped ones among a NIC's applications. `state` returns the state of a process, as `state_of` does."""

    def __init__(self, timeout_s: float, state: Callable[[int], str] = state_of) -> None:
        self._timeout_s = timeout_s
        self._state = state
        self._stopped: dict[int, _Stopped] = {}

    def poll(self, pids: Iterable[int], now: float) -> list[tuple[int, float]]:
        """The processes that have been stopped for too long, with the seconds, at each poll while they are stopped.

        To be called every INTERVAL_S. Of a longer interval only twice INTERVAL_S counts: this NIC was stopped itself.
        """
        before, self._stopped = self._stopped, {}
        lost = []
        for pid in set(pids):
            if pid and self._state(pid) == "T":
                stopped = before.get(pid) or _Stopped(now, 0.0)
                stopped.stopped_s += min(now - stopped.polled, 2 * INTERVAL_S)
                stopped.polled = now
                self._stopped[pid] = stopped
                if stopped.stopped_s >= self._timeout_s - INTERVAL_S:
                    lost.append((pid, stopped.stopped_s))
        return lost
