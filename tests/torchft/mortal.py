"""A rank of tests/torchft/test_deaths.py: waits for the error of its epoch, then makes the next one without rank 1.

    python -m tests.torchft.mortal HOST:PORT RANK SIZE call|idle

Prints a line when the first epoch works, one with its error, and one with a sum of the next epoch.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import torch
from torch.distributed.distributed_c10d import ReduceOp

from softnic.torchft import ProcessGroupSoftnic

DEAD = 1


def total(group: ProcessGroupSoftnic) -> float:
    values = torch.ones(1000)
    group.allreduce([values], ReduceOp.SUM).wait()
    return float(values[0])


def main() -> None:
    store, rank, size, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    group = ProcessGroupSoftnic(timedelta(seconds=60))
    group.configure(f"{store}/first", str(rank), rank, size)
    assert total(group) == size
    print("ready", flush=True)
    if rank == DEAD:
        time.sleep(600)
    try:
        while how == "idle" and group.errored() is None:
            time.sleep(0.01)
        total(group)
    except RuntimeError as error:
        print(str(error).replace("\n", " "), flush=True)
    assert group.errored() is not None
    group.configure(f"{store}/second", str(rank), rank - (rank > DEAD), size - 1)
    print(total(group), flush=True)
    group.shutdown()


if __name__ == "__main__":
    main()
