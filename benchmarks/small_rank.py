"""One rank of benchmarks.small, started by torchrun: times small all-reduces over Gloo and over softnic by turns.

The first rank writes the result to a file: for each round and backend the median time of a call, in seconds, as the
median rank measured it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from pathlib import Path
from typing import Any

BACKENDS = ("gloo", "softnic")
WARM_UP = 20
"""Calls of each backend before the first round."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bytes", type=int, required=True)
    options.add_argument("--calls", type=int, required=True, help="of a round")
    options.add_argument("--rounds", type=int, required=True)
    options.add_argument("--output", type=Path, required=True)
    given = options.parse_args()
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    importlib.import_module("softnic.torch")  # registers the backend
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    groups = {backend: distributed.new_group(backend=backend) for backend in BACKENDS}
    tensor = torch.zeros(given.bytes // 4)

    def median_call(group: Any, calls: int) -> float:
        taken = []
        for _ in range(calls):
            began = time.perf_counter()
            distributed.all_reduce(tensor, group=group)
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    for group in groups.values():
        median_call(group, WARM_UP)
    rounds: list[dict[str, float]] = []
    for _ in range(given.rounds):
        rounds.append({})
        for backend, group in groups.items():
            distributed.barrier()
            medians: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(medians, median_call(group, given.calls))
            rounds[-1][backend] = statistics.median(medians)
    if distributed.get_rank() == 0:
        given.output.write_text(json.dumps(rounds))
    distributed.barrier()
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
