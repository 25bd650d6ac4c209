"""One rank of a comparison: `python -m softnic.experiments.compare.rank --store FILE`, on a node of a cluster.

It receives trainings as lines of JSON on stdin and performs one after the other, so PyTorch and the data are loaded
once. Rank 0 reports every evaluation, each rank the end of a training. The ranks make new communicators for every
training, so no training affects the next.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from softnic.cluster.nic_process import read_stats
from softnic.comm.bootstrap.store import Store
from softnic.experiments import methods, torch_models
from softnic.experiments.compare.plan import TrainingJob
from softnic.experiments.compare.training import Evaluation, RankSteps, RankTraining, Usage
from softnic.experiments.runner import Throttle, ignore, report_failure
from softnic.experiments.torch_replica import TorchReplica
from softnic.measure import timing
from softnic.measure.child_process import report_json
from softnic.mpi.communicator import Communicator, init_communicator

_REPORT_EVERY_S = 0.5


def train(job: TrainingJob, store: Store, rank: int, ranks: int, name: str, *, linear: bool) -> RankSteps:
    """Perform one of `ranks` ranks of a training, whose `name` is unique in the store.

    `linear`: whether the learning rate falls linearly. Raises CommError, DataError, ValueError.
    """

    def new_communicator(purpose: str) -> Communicator:
        return init_communicator(store, rank, ranks, name=f"{name}/{purpose}")

    data = _data(job.data, text=torch_models.reads_text(job.model), photographs=job.learns_photographs)
    comm = new_communicator("training")
    rate_at = job.training.linear_rate_at if linear else job.training.rate_at
    replica = TorchReplica(
        torch_models.build(job.model, job.seed, data.channels, data.classes), rate_at, job.training.momentum
    )
    method = methods.gradient_method(job.method)
    with methods.strategy(job.method, method, replica, comm, new_communicator) as strategy:
        training = RankTraining(job, data, comm, replica, strategy, method)
        if rank:
            training.run(_usage, ignore, ignore)
        else:
            throttle = Throttle(_REPORT_EVERY_S)
            training.run(_usage, _report_evaluation, lambda step: report_json(step=step) if throttle.is_due() else None)
    comm.Free()
    return training.steps()


def _report_evaluation(evaluation: Evaluation) -> None:
    report_json(evaluation=asdict(evaluation))


def _usage() -> Usage:
    stats = read_stats(Path(os.environ["SOFTNIC_NIC"]))
    sent, received = (stats.counters[name] for name in ("tx_wire_bytes", "rx_wire_bytes"))
    return Usage(sent, timing.own_cpu_s() + timing.cpu_s([stats.info.pid]), received)


@lru_cache
def _data(path: str | None, *, text: bool, photographs: bool) -> torch_models.TorchData:
    """Load the data once for all trainings."""
    if photographs:
        return torch_models.photographs()
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
        request = json.loads(line)
        try:
            job, linear = TrainingJob.from_json(request["job"]), request["linear"]
            steps = train(job, store, rank, request["ranks"], request["name"], linear=linear)
        except Exception as error:
            report_failure(rank, error)
            return 1
        report_json(done=asdict(steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
