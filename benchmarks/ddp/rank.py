"""One rank of DistributedDataParallel: `python -m benchmarks.ddp.rank`, over softnic or over Gloo.

Each line on its stdin is an order. `steps WAY COUNT` makes a new model and trains it COUNT steps after some to warm
up; `until WAY ACCURACY EPOCHS` trains until the test accuracy is reached at the end of an epoch, for EPOCHS at most. A
WAY is `exact`; over softnic also a codec ("bounded:10"), which softnic.torch.compress is given, or `hook:` and the name
of a gradient method; over Gloo also `fp16`, torch's fp16_compress_hook.

All ways start from the same weights and see the same batches. What the clock counts is training: not the data, not
the test.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from softnic.experiments import torch_models
from softnic.measure.child_process import report_json
from softnic.measure.timing import machine_cpu_s, own_cpu_s

EXACT, FP16, HOOK = "exact", "fp16", "hook:"
WARM_UP = 5
"""Steps: DDP cuts its buckets anew after the first, memory is set up, windows grow."""
SEED = 7


class Trainer:
    """A rank's data and process group. Tensors are torch's, which is imported when a rank starts."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.distributed: Any = importlib.import_module("torch.distributed")
        self.torch.set_num_threads(1)
        if given.backend == "softnic":
            self._softnic: Any = importlib.import_module("softnic.torch")
        self.distributed.init_process_group(
            given.backend, init_method=given.master, rank=given.rank, world_size=given.size
        )
        self.given = given
        self.data = torch_models.data(given.model, given.data)
        self.batches = len(self.data.train_labels) // (given.batch * given.size)
        """Of an epoch."""

    def start(self, way: str) -> None:
        """A new model, the same for all ways. Raises ValueError for a way that this backend has not."""
        parallel: Any = importlib.import_module("torch.nn.parallel")
        network = torch_models.build(self.given.model, SEED)
        self.model = parallel.DistributedDataParallel(network)
        self.optimizer = self.torch.optim.SGD(self.model.parameters(), lr=self.given.rate, momentum=0.9)
        if self.given.backend == "softnic":
            codec = None if way == EXACT or way.startswith(HOOK) else way
            self._softnic.compress(None, codec)
        elif way == FP16:
            defaults: Any = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
            self.model.register_comm_hook(None, defaults.fp16_compress_hook)
        elif way != EXACT:
            raise ValueError(f"{self.given.backend} trains {EXACT} and {FP16}, not {way}")
        if way.startswith(HOOK):
            hooks: Any = importlib.import_module("softnic.torch.hooks")
            gradients: Any = importlib.import_module("softnic.gradients")
            self.model.register_comm_hook(*hooks.hook(gradients.get(way.removeprefix(HOOK)), self.model))
        self._order: Any = None

    def step(self, number: int) -> float:
        """The loss of this rank's share of the batch, before the step."""
        torch, given = self.torch, self.given
        epoch, batch = divmod(number, self.batches)
        if batch == 0:
            generator = torch.Generator().manual_seed(SEED + epoch)
            self._order = torch.randperm(len(self.data.train_labels), generator=generator)
        at = (batch * given.size + given.rank) * given.batch
        chosen = self._order[at : at + given.batch]
        output = self.model(self.data.train_inputs[chosen])
        loss = torch.nn.functional.cross_entropy(output, self.data.train_labels[chosen])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def accuracy(self) -> float:
        """On the test's samples, of which each rank looks at its share."""
        torch, given = self.torch, self.given
        inputs, labels = (part[given.rank :: given.size] for part in (self.data.test_inputs, self.data.test_labels))
        self.model.eval()
        with torch.no_grad():
            right = sum(
                (self.model.module(part).argmax(1) == truth).sum()
                for part, truth in zip(torch.split(inputs, 500), torch.split(labels, 500), strict=True)
            )
        self.model.train()
        counted = torch.tensor([float(right)])
        self.distributed.all_reduce(counted)
        return float(counted) / len(self.data.test_labels)

    def steps(self, way: str, count: int) -> None:
        self.start(way)
        losses = [self.step(number) for number in range(WARM_UP)]
        self.distributed.barrier()
        began, own, machine = time.monotonic(), own_cpu_s(), machine_cpu_s()
        losses += [self.step(number) for number in range(WARM_UP, WARM_UP + count)]
        self.distributed.barrier()
        seconds = time.monotonic() - began
        report_json(seconds=seconds, cpu_s=own_cpu_s() - own, machine_cpu_s=machine_cpu_s() - machine, losses=losses)

    def until(self, way: str, accuracy: float, epochs: int) -> None:
        """Report the same steps of all ranks: every rank knows the accuracy."""
        self.start(way)
        seconds, reached, epoch = 0.0, 0.0, 0
        while reached < accuracy and epoch < epochs:
            self.distributed.barrier()
            began = time.monotonic()
            for number in range(epoch * self.batches, (epoch + 1) * self.batches):
                self.step(number)
            self.distributed.barrier()
            seconds += time.monotonic() - began
            epoch += 1
            reached = self.accuracy()
        report_json(seconds=seconds, epochs=epoch, steps=epoch * self.batches, accuracy=reached)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backend", choices=["softnic", "gloo"], required=True)
    options.add_argument("--master", required=True, help="where ranks meet: tcp://HOST:PORT")
    options.add_argument("--rank", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    options.add_argument("--model", choices=torch_models.NAMES, required=True)
    options.add_argument("--batch", type=int, required=True, help="samples of a rank")
    options.add_argument("--rate", type=float, required=True, help="of learning")
    options.add_argument("--data", type=Path)
    given = options.parse_args()
    os.nice(4)  # as in tests: where cores are few, a NIC that gets none for 3 s is taken for dead
    trainer = Trainer(given)
    report_json(ready=True)
    for order in sys.stdin:
        what, way, *numbers = order.split()
        if what == "steps":
            trainer.steps(way, int(numbers[0]))
        else:
            trainer.until(way, float(numbers[0]), int(numbers[1]))
    trainer.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
