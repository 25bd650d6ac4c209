"""One rank of local training with outer steps: `python -m benchmarks.outer_rank`, on a NIC.

Each line on its stdin is an order, WAY STEPS: train a new model in that way, and report the loss and the bytes. A way
is `ddp`, the exact mean of gradients in each step; `diloco:METHOD`, outer steps by a gradient method; `own:METHOD`, the
same from each rank's own weights; or `streaming:CODEC`. All ways start from the same weights, and a rank sees the same
batches in all of them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from softnic import MPI, gradients
from softnic.experiments import torch_models
from softnic.gradients import Floats
from softnic.gradients.outer import Outer, StreamingOuter
from softnic.measure.child_process import report_json

DDP, DILOCO, OWN, STREAMING = "ddp", "diloco", "own", "streaming"
SEED = 7
RATE = 1e-3
"""Of the inner optimizer, AdamW."""
TEST_BATCH = 64


class Trainer:
    """A rank's data and model. Tensors are torch's, which is imported when a rank starts."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.comm = given, MPI.COMM_WORLD
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(1)
        self.data = torch_models.data(given.model, given.data)
        own = np.arange(len(self.data.train_labels))[self.comm.rank :: self.comm.size]
        self._own = self.torch.from_numpy(own)

    def train(self, way: str, steps: int) -> None:
        torch, comm = self.torch, self.comm
        self.model = torch_models.build(self.given.model, SEED)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        weights = {name: each.detach().view(-1).numpy() for name, each in self.model.named_parameters()}
        kind, _, by = way.partition(":")
        exact, outer = gradients.get("exact"), self._outer(kind, by, weights)
        order = torch.Generator().manual_seed(SEED + comm.rank)
        comm.Barrier()
        begun, sent, finished = time.monotonic(), 0, 0
        for _ in range(steps):
            chosen = self._own[torch.randint(len(self._own), (self.given.batch,), generator=order)]
            optimizer.zero_grad()
            self._loss(self.data.train_inputs[chosen], self.data.train_labels[chosen]).backward()
            if outer is None:
                found: Any = self.model.named_parameters()
                exact.average(comm, {name: each.grad.view(-1).numpy() for name, each in found})
            optimizer.step()
            if outer is not None:
                outer.step(comm)
        if isinstance(outer, StreamingOuter):
            outer.finish(comm)
            sent = outer.sent_bytes
        elif outer is not None:
            sent = outer.method.stats.sent_bytes
            finished = outer.finish(comm) if kind == OWN else 0
        seconds = time.monotonic() - begun
        self._agree(weights)
        floats = sum(each.size for each in weights.values())
        report_json(loss=self._test_loss(), sent_bytes=sent, finish_bytes=finished, floats=floats, seconds=seconds)

    def _outer(self, kind: str, by: str, weights: dict[str, Floats]) -> Outer | StreamingOuter | None:
        every = self.given.every
        if kind == STREAMING:
            return StreamingOuter(by, weights, every, fragments=4, delay=max(1, every // 20))
        if kind == DDP:
            return None
        own_momentum = kind == DILOCO and by.startswith("sparseloco")
        rate, momentum = (1.0, 0.0) if own_momentum else (0.7, 0.9)
        return Outer(gradients.get(by), weights, every, rate, momentum, own=kind == OWN)

    def _agree(self, weights: dict[str, Floats]) -> None:
        """Take the mean of all ranks' weights: those that a streaming rank has mixed differ."""
        for array in weights.values():
            mean = np.empty_like(array)
            self.comm.Allreduce(array, mean)
            array[:] = mean / np.float32(self.comm.size)

    def _loss(self, inputs: Any, labels: Any) -> Any:
        output = self.model(inputs)
        if output.dim() == 3:  # (batch, place, character)
            output, labels = output.flatten(0, 1), labels.flatten()
        return self.torch.nn.functional.cross_entropy(output, labels)

    def _test_loss(self) -> float:
        """The mean over the test's samples, of which each rank looks at its share."""
        tests: Any = (self.data.test_inputs, self.data.test_labels)
        inputs, labels = (part[self.comm.rank :: self.comm.size] for part in tests)
        self.model.eval()
        total = 0.0
        with self.torch.no_grad():
            for part, truth in zip(inputs.split(TEST_BATCH), labels.split(TEST_BATCH), strict=True):
                total += float(self._loss(part, truth)) * len(truth)
        return float(self.comm.allreduce(total) / len(self.data.test_labels))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", choices=torch_models.NAMES, required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--every", type=int, required=True)
    options.add_argument("--data", type=Path)
    trainer = Trainer(options.parse_args())
    report_json(ready=True)
    for order in sys.stdin:
        way, steps = order.split()
        trainer.train(way, int(steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
