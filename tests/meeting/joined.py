"""A rank under `softnic join` that exchanges bytes with the other one, and says how its NIC reaches it.

python -m tests.meeting.joined [SECONDS]

The last line of its output is `direct` or `relayed`; a way that is relayed has SECONDS (4) to become direct.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from softnic import MPI
from softnic.cluster.nic_process import read_stats

BETTER_S = 4.0
FLOATS = 250_000


def main(better_s: float) -> None:
    comm = MPI.COMM_WORLD
    other = 1 - comm.rank
    sent = np.arange(FLOATS, dtype=np.float32) + comm.rank
    got = np.empty_like(sent)
    end = time.monotonic() + better_s
    while True:
        comm.Sendrecv(sent, other, 0, got, other, 0)
        assert (got == np.arange(FLOATS, dtype=np.float32) + other).all()
        [way] = read_stats(os.environ["SOFTNIC_NIC"]).ways  # type: ignore[arg-type]
        late = np.array([way.relayed and time.monotonic() < end], np.int32)
        again = np.empty_like(late)
        comm.Allreduce(late, again, MPI.SUM)
        if not again[0]:
            break
        time.sleep(0.1)
    comm.Barrier()
    print("relayed" if way.relayed else "direct", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else BETTER_S)
