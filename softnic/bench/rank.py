"""One rank of a measured all-reduce: `python -m softnic.bench.rank --megabytes 100`.

Each line on its stdin is one all-reduce: `exact`, or a codec. It tells the seconds from a barrier to the result, CPU
time, the largest error against the exact sum, and a digest of the result. Every rank's floats are the same ones, turned
by another amount, so all know the exact sum without having exchanged it.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time

import numpy as np

from softnic import MPI
from softnic.bench import inputs
from softnic.bench.measure import own_cpu_s
from softnic.bench.programs import tell
from softnic.train.data import Floats

EXACT = "exact"
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


def reduce(given: str, buffer: Floats) -> None:
    if given == EXACT:
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, buffer)
    else:
        MPI.COMM_WORLD.Allreduce_comp(MPI.IN_PLACE, buffer, codec=given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="softnic.bench.rank", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--data", default="gaussian:0.01")
    given = parser.parse_args()
    comm = MPI.COMM_WORLD
    count = max(1, round(given.megabytes * 1e6 / 4))
    words = pattern(given.data, count)
    mine = own(words, comm.Get_rank(), count)
    buffer = np.empty_like(mine)
    MPI.Init()
    tell(ready=True)
    for line in sys.stdin:
        buffer[:] = mine
        comm.Barrier()
        began, cpu = time.monotonic(), own_cpu_s()
        reduce(line.strip(), buffer)
        seconds, cpu = time.monotonic() - began, own_cpu_s() - cpu
        digest = hashlib.sha256(buffer.data).hexdigest()
        tell(seconds=seconds, cpu_s=cpu, max_error=error(buffer, words, comm.Get_size()), digest=digest)
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
