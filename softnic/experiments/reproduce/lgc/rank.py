"""One rank that trains a network by one gradient method after the other, over its NIC, and reports each training.

`python -m softnic.experiments.reproduce.lgc.rank --model convnet --methods exact lgc-ring:full=100 --steps 600`. All
ranks begin a training with the same weights; each draws batches from its own part of the data.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from softnic import MPI, gradients
from softnic.cluster.nic_process import read_stats
from softnic.comm.communicator import Communicator
from softnic.experiments import torch_models
from softnic.experiments.child_process import report_json
from softnic.experiments.data import batches_of_rank
from softnic.experiments.strategies import BulkAllreduce
from softnic.experiments.torch_replica import TorchReplica
from softnic.experiments.trainer import TrainingLoop
from softnic.gradients.lgc.phases import Lgc

BATCH = 16
MOMENTUM = 0.9


def linear_decay(steps: int) -> Callable[[int], float]:
    """A learning rate by step that falls linearly from 0.05 to zero."""
    return lambda step: 0.05 * (1 - step / steps)


def train(comm: Communicator, name: str, data: torch_models.TorchData, args: argparse.Namespace) -> dict[str, Any]:
    """Train once by a method of softnic.gradients. Returns the report of all ranks."""
    method = gradients.get(name)
    replica = TorchReplica(torch_models.build(args.model, args.seed), linear_decay(args.steps), MOMENTUM)
    if method.momentum:
        replica.disable_momentum()
    draws = batches_of_rank(data.train_inputs, data.train_labels, comm.rank, comm.size, BATCH, args.seed)
    strategy = BulkAllreduce(replica, partial(method.average, comm, replica.named_gradients))
    trainer = TrainingLoop(replica, strategy, draws)
    test = slice(comm.rank, None, comm.size)
    sent, evaluations, wire = [], [], 0
    comm.barrier()
    wire_before = _wire_bytes()
    for step in range(1, args.steps + 1):
        sent_before = method.stats.sent_bytes
        trainer.step()
        sent.append(method.stats.sent_bytes - sent_before)
        if step % args.eval_every == 0 or step == args.steps:
            comm.barrier()
            wire += _wire_bytes() - wire_before
            _, correct, _ = replica.evaluate(data.test_inputs[test], data.test_labels[test])
            evaluations.append((step, comm.allreduce(correct) / len(data.test_labels)))
            comm.barrier()
            wire_before = _wire_bytes()
    phases = method.traffic if isinstance(method, Lgc) else {}
    mine = {
        "losses": trainer.losses,
        "seconds": [iteration.end - iteration.begin for iteration in replica.timeline.iterations],
        "sent": sent,
        "wire": wire,
        "traffic": {phase: asdict(each) for phase, each in phases.items()},
    }
    return {"ranks": comm.allgather(mine), "evaluations": evaluations, "bytes": replica.gradients.nbytes}


def _wire_bytes() -> int:
    """Bytes that this rank's NIC has sent since it started, with all headers."""
    return read_stats(Path(os.environ["SOFTNIC_NIC"])).counters["tx_wire_bytes"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--methods", nargs="+", required=True, help="of softnic.gradients")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--eval-every", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    data, comm = torch_models.data(args.model, args.data), MPI.COMM_WORLD
    for name in args.methods:
        report = train(comm, name, data, args)
        if comm.rank == 0:
            report_json(**report)
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
