"""One rank of a comparison: `python -m softnic.experiments.compare.rank --store FILE`, on a node of a cluster.

It is given trainings, a line of JSON each on stdin, and goes through one after the other: PyTorch and the data are
loaded once. Of each it tells every look, and then that it is through. Ranks meet anew for every training, so nothing
of one is left to the next.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from softnic.cluster.nic_process import read_stats
from softnic.comm.bootstrap.store import Store
from softnic.comm.communicator import Communicator, init_communicator
from softnic.comm.errors import CommError
from softnic.experiments import measure, methods, torch_models
from softnic.experiments.child_process import report_json
from softnic.experiments.compare.learn import Look, Meter, OnLook, OnStep, Rank, Used
from softnic.experiments.compare.plan import Job
from softnic.experiments.torch_replica import TorchReplica

_TELL_EVERY_S = 0.5


@dataclass(frozen=True)
class Place:
    """Where this rank stands in a training."""

    store: Store
    rank: int
    size: int
    """Of all ranks, aggregators too."""
    meeting: str
    """Only this training's."""

    def meet(self, name: str) -> Communicator:
        return init_communicator(self.store, self.rank, self.size, name=f"{self.meeting}/{name}")


def train(job: Job, place: Place, used: Meter, on_look: OnLook, on_step: OnStep) -> None:
    """Goes through a training as one of its ranks. Raises CommError, DataError, ValueError."""
    data = _data(job.data, text=torch_models.reads_text(job.model))
    comm = place.meet("training")
    replica = TorchReplica(torch_models.build(job.model, job.seed), job.training)
    with methods.exchange(job.method, replica, comm, place.meet) as exchange:
        Rank(job, data, comm, replica, exchange).learn(used, on_look, on_step)
    comm.Free()


def _ignore(_told: Any) -> None:
    """The first rank tells for all."""


def _on_look(look: Look) -> None:
    report_json(look=asdict(look))


class _Steps:
    """Tells the number of steps done, now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, step: int) -> None:
        if (now := time.monotonic()) >= self._next:
            report_json(step=step)
            self._next = now + _TELL_EVERY_S


def _used() -> Used:
    stats = read_stats(Path(os.environ["SOFTNIC_NIC"]))
    return Used(stats.counters["tx_wire_bytes"], measure.own_cpu_s() + measure.cpu_s([stats.info.pid]))


@lru_cache
def _data(path: str | None, *, text: bool) -> torch_models.TorchData:
    """Loaded once for all trainings."""
    return (torch_models.text if text else torch_models.images)(None if path is None else Path(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, metavar="FILE")
    given = parser.parse_args()
    import torch
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    torch.set_num_threads(1)
    store = FileStore(given.store)
    rank = int(os.environ["SOFTNIC_RANK"])
    for line in sys.stdin:
        told = json.loads(line)
        place = Place(store, rank, told["ranks"], told["meeting"])
        on_look, on_step = (_ignore, _ignore) if rank else (_on_look, _Steps())
        try:
            train(Job.from_json(told["job"]), place, _used, on_look, on_step)
        except Exception as error:
            # One line for people; whether it is this rank's own failure tells whose line to show.
            report_json(failed=f"rank {rank}: {error}", others=isinstance(error, CommError))
            traceback.print_exc()
            return 1
        report_json(through=told["meeting"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
