"""One rank of PyTorch's Gloo: exact float32, or float16 on the wire as DDP's fp16_compress_hook does it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from softnic.bench.rank import EXACT, parser, serve
from softnic.experiments.data import Floats


class Gloo:
    def __init__(self, rank: int, size: int, master: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._distributed: Any = importlib.import_module("torch.distributed")
        self._torch.set_num_threads(1)
        self._distributed.init_process_group("gloo", init_method=master, rank=rank, world_size=size)
        self.rank, self.size = rank, size

    def barrier(self) -> None:
        self._distributed.barrier()

    def empty(self, memory: str, count: int) -> Floats:  # noqa: ARG002
        return np.empty(count, np.float32)

    def reduce(self, what: str, buffer: Floats) -> None:
        floats = self._torch.from_numpy(buffer)
        if what == EXACT:
            self._distributed.all_reduce(floats)
            return
        halves = floats.to(self._torch.float16)
        self._distributed.all_reduce(halves)
        floats.copy_(halves)


def main() -> int:
    options = parser()
    options.add_argument("--rank", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    options.add_argument("--master", required=True)
    given = options.parse_args()
    serve(Gloo(given.rank, given.size, given.master), given.megabytes, given.data, sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
