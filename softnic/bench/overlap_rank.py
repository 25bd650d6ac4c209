"""One rank that computes while its floats are exchanged: `python -m softnic.bench.overlap_rank --megabytes 100`.

Each line on its stdin is a command: ALONE and a number of seconds to compute; or BLOCKING or NONBLOCKING and a
codec (or `exact`), to compute during an all-reduce that a thread of this rank calls, or that was posted. It reports the
work done, the time and the CPU time. The computation fits into the first caches and uses one core.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from softnic import MPI
from softnic.bench.rank import NONBLOCKING, REGISTERED, Softnic, own, parser, pattern
from softnic.measure.child_process import report_json
from softnic.measure.timing import own_cpu_s

ALONE = "alone"
UNIT_WORDS = 2048
UNIT_PASSES = 300


class Work:
    """Computation in units of about 200 us."""

    def __init__(self) -> None:
        self._factors = np.linspace(0.5, 1, UNIT_WORDS, dtype=np.float32)
        self._state = np.ones(UNIT_WORDS, np.float32)

    def until(self, done: Callable[[], bool]) -> int:
        """Compute until `done`, checked after each unit, returns true. Return the number of units."""
        units = 0
        while not done():
            for _ in range(UNIT_PASSES):
                np.multiply(self._state, self._factors, out=self._state)
                np.add(self._state, self._factors, out=self._state)
            units += 1
        return units


def main() -> int:
    given = parser().parse_args()
    group, work = Softnic(), Work()
    count = max(1, round(given.megabytes * 1e6 / 4))
    mine = own(pattern(given.data, count), group.rank, count)
    buffer = group.empty(REGISTERED, count)
    report_json(ready=True)
    for order in sys.stdin:
        call, what = order.split()
        buffer[:] = mine
        group.barrier()
        began, cpu = time.monotonic(), own_cpu_s()
        if call == ALONE:
            units = work.until(_elapsed(began + float(what)))
        elif call == NONBLOCKING:
            units = work.until(group.begin(what, buffer).Test)
        else:
            thread = threading.Thread(target=group.reduce, args=(what, buffer))
            thread.start()
            units = work.until(_ended(thread))
            thread.join()
        report_json(units=units, seconds=time.monotonic() - began, cpu_s=own_cpu_s() - cpu)
    MPI.Finalize()
    return 0


def _elapsed(until: float) -> Callable[[], bool]:
    return lambda: time.monotonic() >= until


def _ended(thread: threading.Thread) -> Callable[[], bool]:
    return lambda: not thread.is_alive()


if __name__ == "__main__":
    sys.exit(main())
