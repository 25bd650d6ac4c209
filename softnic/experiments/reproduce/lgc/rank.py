"""One rank that trains a network by one gradient method after the other, over its NIC, and reports each.

`python -m softnic.experiments.reproduce.lgc.rank --model convnet --methods exact lgc-ring:full=100 --steps 600`. All
ranks begin a training with the same weights; each draws batches from its own part of the data.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from softnic import MPI, gradients
from softnic.cluster.nic_process import read_stats
from softnic.comm.communicator import Communicator
from softnic.experiments import torch_models as models
from softnic.experiments.child_process import report_json
from softnic.experiments.data import batches
from softnic.gradients.lgc.phases import Lgc

MOMENTUM = 0.9
BATCH = 16
FIRST_RATE = 0.05
"""Learning rate of the first step; it falls linearly to zero."""
_TEST_AT_A_TIME = 500


def train(comm: Communicator, name: str, own_momentum: bool, data: models.TorchData, args: argparse.Namespace) -> Any:
    """Train once. Returns the report of all ranks."""
    import torch

    model, method = models.build(args.model, args.seed), gradients.get(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=FIRST_RATE, momentum=0.0 if own_momentum else MOMENTUM)
    draws = batches(
        len(data.train_labels[comm.rank :: comm.size]), BATCH, np.random.default_rng([args.seed, comm.rank])
    )
    losses, seconds, sent, evaluations = [], [], [], []
    comm.barrier()
    wire = _wire_bytes()
    for step in range(args.steps):
        drawn = torch.from_numpy(next(draws) * comm.size + comm.rank)
        began, before = time.monotonic(), method.stats.sent_bytes
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(model(data.train_inputs[drawn]), data.train_labels[drawn])
        loss.backward()  # type: ignore[no-untyped-call]
        gradients_by_name = {
            key: each.grad.view(-1).numpy() for key, each in model.named_parameters() if each.grad is not None
        }
        method.average(comm, gradients_by_name)
        optimizer.param_groups[0]["lr"] = FIRST_RATE * (1 - step / args.steps)
        optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(time.monotonic() - began)
        sent.append(method.stats.sent_bytes - before)
        if (step + 1) % args.eval_every == 0 or step + 1 == args.steps:
            comm.barrier()
            wire, so_far = _wire_bytes(), _wire_bytes() - wire
            evaluations.append((step + 1, comm.allreduce(_right(model, data, comm)) / len(data.test_labels), so_far))
            comm.barrier()
            wire = _wire_bytes()
    mine = {
        "losses": losses,
        "seconds": seconds,
        "sent": sent,
        "wire": sum(each[2] for each in evaluations),
        "traffic": {key: asdict(each) for key, each in method.traffic.items()} if isinstance(method, Lgc) else {},
    }
    words = sum(each.size for each in gradients_by_name.values())
    return {"ranks": comm.allgather(mine), "evaluations": [each[:2] for each in evaluations], "bytes": 4 * words}


def _right(model: Any, data: models.TorchData, comm: Communicator) -> int:
    """Count the right answers on this rank's part of the test set."""
    import torch

    inputs, labels = data.test_inputs[comm.rank :: comm.size], data.test_labels[comm.rank :: comm.size]
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(inputs[at : at + _TEST_AT_A_TIME]).argmax(1) == labels[at : at + _TEST_AT_A_TIME]).sum())
            for at in range(0, len(labels), _TEST_AT_A_TIME)
        )
    model.train()
    return right


def _wire_bytes() -> int:
    """Bytes that this rank's NIC has sent since it started, with all headers."""
    return read_stats(Path(os.environ["SOFTNIC_NIC"])).counters["tx_wire_bytes"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--methods",
        nargs="+",
        required=True,
        help="of softnic.gradients, with +m after those that include the momentum",
    )
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--eval-every", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    data, comm = models.data(args.model, args.data), MPI.COMM_WORLD
    for name in args.methods:
        report = train(comm, name.removesuffix("+m"), name.endswith("+m"), data, args)
        if comm.rank == 0:
            report_json(**report)
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
