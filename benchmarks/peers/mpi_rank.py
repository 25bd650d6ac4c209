"""One rank of Open MPI, started by mpirun. Only the first has a stdin: it passes orders on, and tells for all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from softnic.bench.rank import parser, serve
from softnic.experiments.data import Floats
from softnic.measure.child_process import report_json


class OpenMpi:
    def __init__(self) -> None:
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self.world: Any = self._mpi.COMM_WORLD
        self.rank, self.size = int(self.world.rank), int(self.world.size)

    def barrier(self) -> None:
        self.world.Barrier()

    def empty(self, memory: str, count: int) -> Floats:  # noqa: ARG002
        return np.empty(count, np.float32)

    def reduce(self, what: str, buffer: Floats) -> None:  # noqa: ARG002
        self.world.Allreduce(self._mpi.IN_PLACE, buffer)

    def orders(self) -> Iterator[str]:
        while line := self.world.bcast(sys.stdin.readline() if self.rank == 0 else None):
            yield line

    def report(self, **values: Any) -> None:
        reported = self.world.gather(values)
        if reported is not None:
            report_json(ranks=reported)


def main() -> int:
    given = parser().parse_args()
    group = OpenMpi()
    serve(group, given.megabytes, given.data, group.orders(), group.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
