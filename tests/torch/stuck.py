"""One rank of tests/torch/test_stuck.py: in each group, rank 1 does something else than the others."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import softnic.torch  # noqa: F401

LIMIT_S = 2.0


def late(group: dist.ProcessGroup) -> None:
    dist.all_reduce(torch.ones(1000), group=group)


def future(group: dist.ProcessGroup) -> None:
    work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
    assert work is not None
    work.get_future().wait()


def message(group: dist.ProcessGroup) -> None:
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1000), 1, group=group)


def call(group: dist.ProcessGroup) -> None:
    values = torch.ones(1000)
    if dist.get_rank() == 1:
        time.sleep(0.5)
        dist.broadcast(values, 0, group=group)
    else:
        dist.all_reduce(values, group=group)


CASES: dict[str, Callable[[dist.ProcessGroup], None]] = {
    "late": late,
    "future": future,
    "message": message,
    "call": call,
}


def main() -> None:
    directory = Path(sys.argv[1])
    dist.init_process_group("softnic")
    rank = dist.get_rank()
    groups = {name: dist.new_group(list(range(dist.get_world_size()))) for name in CASES}
    for name, case in CASES.items():
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{directory}/{name}/rank_"
        group = groups[name]
        assert isinstance(group, dist.ProcessGroup)
        dist.all_reduce(torch.ones(10), group=group)
        group.set_timeout(timedelta(seconds=LIMIT_S))
        began, done = time.monotonic(), directory / f"{name} is over"
        while rank == 1 and name != "call" and not done.exists():  # it is late until rank 0 has its error
            time.sleep(0.1)
        text = ""
        try:
            case(group)
        except RuntimeError as error:
            text = str(error)
        took_s = time.monotonic() - began
        if rank == 0:
            time.sleep(2.0)  # for the others to notice that the group has ended
            done.touch()
        print("RESULT " + json.dumps({"name": name, "text": text, "seconds": took_s}), flush=True)
        dist.barrier()


if __name__ == "__main__":
    main()
