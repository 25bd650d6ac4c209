"""One rank of a measured all-reduce: `python -m softnic.bench.rank --megabytes 100`.

Each line on its stdin is one all-reduce: `exact` or a codec, behind POSTED for a nonblocking call, and where an
algorithm is named that (`bounded:10/tree`); ORDINARY or REGISTERED for the memory that the floats lie in; and CHECK, or
not. It tells the seconds from a barrier to the result and CPU time; checked, also the largest error against the exact
sum and a digest of the result, which cost more than some all-reduces. Every rank's floats are the same ones, turned by
another amount, so all know the exact sum without having exchanged it.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from softnic import MPI
from softnic.bench import inputs
from softnic.experiments.data import Floats
from softnic.ipc.regions import empty
from softnic.measure.child_process import report_json
from softnic.measure.timing import machine_cpu_s, own_cpu_s

EXACT = "exact"
BLOCKING, NONBLOCKING = "blocking", "nonblocking"
"""Allreduce; or Iallreduce and Wait."""
POSTED = "I:"
"""Begins the order of a nonblocking call."""
ORDINARY, REGISTERED = "ordinary", "registered"
"""What numpy has, which is staged, and what the NIC maps (softnic.empty)."""
CHECK = "check"
PATTERN_WORDS = 1 << 22
_TURN_WORDS = 104_729


def pattern(data: str, count: int) -> Floats:
    """What all ranks' floats are made of."""
    return inputs.floats(data, min(count, PATTERN_WORDS))


def own(words: Floats, rank: int, count: int) -> Floats:
    """The floats of a rank: as many of the pattern's, turned by its number, as often as it takes."""
    return np.resize(np.roll(words, rank * _TURN_WORDS), count)


def error(result: Floats, words: Floats, size: int) -> float:
    """The largest error of any float of a sum over `size` ranks."""
    exact = np.zeros(words.size)
    for rank in range(size):
        exact += np.roll(words, rank * _TURN_WORDS)
    parts = (result[at : at + words.size] for at in range(0, result.size, words.size))
    return max(float(np.abs(part - exact[: part.size]).max()) for part in parts)


class RankGroup(Protocol):
    """Ranks that reduce together, as one of them sees it. The peers that softnic is measured beside are others."""

    rank: int
    size: int

    def barrier(self) -> None: ...

    def empty(self, memory: str, count: int) -> Floats:
        """Memory for so many floats, of the kind that an order names."""

    def reduce(self, what: str, buffer: Floats) -> None:
        """Replaces the floats by their sum over all ranks, in the way that an order names."""


class Softnic:
    """What users call."""

    def __init__(self) -> None:
        MPI.Init()
        self.rank, self.size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()

    def barrier(self) -> None:
        MPI.COMM_WORLD.Barrier()

    def empty(self, memory: str, count: int) -> Floats:
        return empty(count) if memory == REGISTERED else np.empty(count, np.float32)

    def reduce(self, what: str, buffer: Floats) -> None:
        if what.startswith(POSTED):
            self.begin(what.removeprefix(POSTED), buffer).Wait()
        elif what == EXACT:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, buffer)
        else:
            codec, algorithm = _keywords(what)
            MPI.COMM_WORLD.Allreduce_comp(MPI.IN_PLACE, buffer, codec=codec, algorithm=algorithm)

    def begin(self, what: str, buffer: Floats) -> MPI.Request:
        """Begin the nonblocking call."""
        if what == EXACT:
            return MPI.COMM_WORLD.Iallreduce(MPI.IN_PLACE, buffer)
        codec, algorithm = _keywords(what)
        return MPI.COMM_WORLD.Iallreduce_comp(MPI.IN_PLACE, buffer, codec=codec, algorithm=algorithm)


def _keywords(what: str) -> tuple[str, str | None]:
    """The codec and the algorithm: raw is exact, and takes the name of an algorithm."""
    codec, _, algorithm = what.partition("/")
    return "raw" if codec == EXACT else codec, algorithm or None


def serve(
    group: RankGroup, megabytes: float, data: str, orders: Iterable[str], report: Callable[..., None] = report_json
) -> None:
    """Carries out one all-reduce an order."""
    count = max(1, round(megabytes * 1e6 / 4))
    words = pattern(data, count)
    mine = own(words, group.rank, count)
    buffers: dict[str, Floats] = {}
    report(ready=True)
    for order in orders:
        what, memory, *check = order.split()
        if memory not in buffers:
            buffers[memory] = group.empty(memory, count)
        buffer = buffers[memory]
        buffer[:] = mine
        group.barrier()
        began, cpu, busy = time.monotonic(), own_cpu_s(), machine_cpu_s()
        group.reduce(what, buffer)
        seconds, cpu, busy = time.monotonic() - began, own_cpu_s() - cpu, machine_cpu_s() - busy
        reported = {"seconds": seconds, "cpu_s": cpu, "machine_cpu_s": busy}
        if check == [CHECK]:
            reported["max_error"] = error(buffer, words, group.size)
            reported["digest"] = zlib.crc32(buffer.data)
        report(**reported)


def parser() -> argparse.ArgumentParser:
    """Options of the ranks of all groups."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=float, default=100)
    options.add_argument("--data", default="gaussian:0.01")
    return options


def main() -> int:
    given = parser().parse_args()
    serve(Softnic(), given.megabytes, given.data, sys.stdin)
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
