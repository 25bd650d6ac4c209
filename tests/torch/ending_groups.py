"""One rank of tests/torch/test_ends.py: creates and destroys process groups repeatedly; some stay open at exit."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import softnic.torch

ROUNDS = 3


def open_fds() -> int:
    """Count them without those of objects that only wait for the collector of cycles."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def begin(directory: Path, number: int) -> dist.ProcessGroup:
    """Create a group and use everything that opens file descriptors."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("softnic", init_method=f"file://{directory}/{number}", rank=rank, world_size=size)
    group = dist.new_group(list(range(size)))
    assert isinstance(group, dist.ProcessGroup)
    for each in (None, group):
        values = torch.ones(1000)
        dist.all_reduce(values, group=each)
        assert values[0] == size
    assert softnic.torch.communicator().allreduce(1) == size
    return group


def main() -> None:
    directory, counts = Path(sys.argv[1]), []
    groups = []
    for number in range(ROUNDS):
        groups.append(begin(directory, number))
        dist.destroy_process_group()
        counts.append(open_fds())
    print("RESULT " + json.dumps(counts), flush=True)
    groups.append(begin(directory, ROUNDS))


if __name__ == "__main__":
    main()
