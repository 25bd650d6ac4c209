"""Two ranks under `softnic join`, one of which sends blocks to the other all the time.

python -m tests.meeting.streamed SECONDS

Rank 1 checks every byte, and prints the longest time without a block, in seconds, and the number of blocks. Rank 0
writes the line `sending` to standard error first.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from softnic import MPI

BLOCK = 16_384
PERIOD_S = 0.01


def block(number: int) -> np.ndarray:
    return np.arange(number, number + BLOCK, dtype=np.uint32)


def send(comm: MPI.Intracomm, seconds: float) -> None:
    print("sending", file=sys.stderr, flush=True)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        comm.Send(block(number), 1, 0)
        number += 1
        time.sleep(PERIOD_S)
    comm.Send(block(number), 1, 1)


def receive(comm: MPI.Intracomm) -> None:
    got, status, number, longest = block(0), MPI.Status(), 0, 0.0
    last = time.monotonic()
    while True:
        comm.Recv(got, 0, MPI.ANY_TAG, status)
        now = time.monotonic()
        if number:
            longest = max(longest, now - last)
        last = now
        assert (got == block(number)).all()
        if status.Get_tag():
            break
        number += 1
    print(longest, number, flush=True)


def main(seconds: float) -> None:
    comm = MPI.COMM_WORLD
    comm.Barrier()
    if comm.rank:
        receive(comm)
    else:
        send(comm, seconds)
    comm.Barrier()


if __name__ == "__main__":
    main(float(sys.argv[1]))
