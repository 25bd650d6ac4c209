"""One rank that trains a network by one gradient method after the other, over its NIC, and tells how each went.

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
from softnic.cluster import read_stats
from softnic.comm.communicator import Communicator
from softnic.experiments import torch_models
from softnic.experiments.child_process import report_json
from softnic.experiments.data import batches
from softnic.gradients.lgc.phases import Lgc

MOMENTUM = 0.9
BATCH = 16
RATE = 0.05
"""At the beginning; it falls to nothing in a straight line."""
_TEST_AT_A_TIME = 500


def train(
    comm: Communicator, name: str, own_momentum: bool, data: torch_models.TorchData, given: argparse.Namespace
) -> Any:
    """One training. Returns what is told of it, at rank 0."""
    import torch

    model, method = torch_models.build(given.model, given.seed), gradients.get(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.0 if own_momentum else MOMENTUM)
    draws = batches(
        len(data.train_labels[comm.rank :: comm.size]), BATCH, np.random.default_rng([given.seed, comm.rank])
    )
    losses, seconds, sent, judged = [], [], [], []
    comm.barrier()
    wire = _wire_bytes()
    for step in range(given.steps):
        drawn = torch.from_numpy(next(draws) * comm.size + comm.rank)
        began, before = time.monotonic(), method.stats.sent_bytes
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(model(data.train_inputs[drawn]), data.train_labels[drawn])
        loss.backward()  # type: ignore[no-untyped-call]
        found = {key: each.grad.view(-1).numpy() for key, each in model.named_parameters() if each.grad is not None}
        method.average(comm, found)
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / given.steps)
        optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(time.monotonic() - began)
        sent.append(method.stats.sent_bytes - before)
        if (step + 1) % given.judge_every == 0 or step + 1 == given.steps:
            comm.barrier()
            wire, so_far = _wire_bytes(), _wire_bytes() - wire
            judged.append((step + 1, comm.allreduce(_right(model, data, comm)) / len(data.test_labels), so_far))
            comm.barrier()
            wire = _wire_bytes()
    mine = {
        "losses": losses,
        "seconds": seconds,
        "sent": sent,
        "wire": sum(each[2] for each in judged),
        "traffic": {key: asdict(each) for key, each in method.traffic.items()} if isinstance(method, Lgc) else {},
    }
    words = sum(each.size for each in found.values())
    return {"ranks": comm.allgather(mine), "judged": [each[:2] for each in judged], "bytes": 4 * words}


def _right(model: Any, data: torch_models.TorchData, comm: Communicator) -> int:
    """Right answers on this rank's part of the test set."""
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
    """What this rank's NIC has sent since it started, with all headers."""
    return read_stats(Path(os.environ["SOFTNIC_NIC"])).counters["tx_wire_bytes"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--methods", nargs="+", required=True, help="of softnic.gradients; +m: it has the momentum")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--judge-every", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    data, comm = torch_models.data(given.model, given.data), MPI.COMM_WORLD
    for name in given.methods:
        told = train(comm, name.removesuffix("+m"), name.endswith("+m"), data, given)
        if comm.rank == 0:
            report_json(**told)
    MPI.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
