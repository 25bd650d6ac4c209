"""One replica of a training by torchft: `python -m benchmarks.elastic.replica`, over softnic or over Gloo.

It trains until its stdin ends, and reports each step: whether it was committed, by how many members, and a checksum of
the weights, by which members are compared. With `--what plain` it trains without torchft, over torch.distributed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import select
import sys
import time
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from softnic.experiments import torch_models
from softnic.measure.child_process import report_json

SEED = 7
RATE = 0.01
"""Of learning."""
GLOO, SOFTNIC = "gloo", "softnic"
PLAIN, ELASTIC, BUILD = "plain", "elastic", "build"
"""Without torchft; with it; and nothing but what a process does before its first step."""
QUORUM_RETRIES = 10
"""How often a replica asks again for a quorum, while the lighthouse may be starting again."""
PADDING = "padding"
"""A parameter that takes no part in the training, for a state of a given size."""


class Replica:
    """Model, data, and how gradients are averaged. Tensors are torch's, which is imported when a replica starts."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(1)
        report_json(phase="imported", at=time.monotonic())
        self.data = torch_models.data(given.model, given.data)
        self.model = torch_models.build(given.model, SEED)
        self._batches = len(self.data.train_labels) // given.batch
        if given.padding:
            self.model.register_buffer(PADDING, self.torch.zeros(given.padding))
        self.inner = self.torch.optim.Adam(self.model.parameters(), lr=RATE)
        report_json(phase="built", at=time.monotonic())

    def batch(self, number: int) -> tuple[Any, Any]:
        """Return inputs and labels of a step: other ones for each replica."""
        at = (number * 31 + self.given.number * 7919) % self._batches * self.given.batch
        chosen = slice(at, at + self.given.batch)
        return self.data.train_inputs[chosen], self.data.train_labels[chosen]

    def loss(self, model: Any, number: int) -> Any:
        inputs, labels = self.batch(number)
        output = model(inputs)
        if output.dim() == 3:  # (batch, place, character)
            output, labels = output.flatten(0, 1), labels.flatten()
        return self.torch.nn.functional.cross_entropy(output, labels)

    def digest(self) -> int:
        """Return a checksum of all weights."""
        found = 0
        for tensor in self.model.state_dict().values():
            found = zlib.crc32(tensor.detach().contiguous().view(self.torch.uint8).reshape(-1).numpy(), found)
        return found

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.inner.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.inner.load_state_dict(state["optimizer"])

    # -- by torchft --------------------------------------------------------------------------------------------------

    def train_elastic(self) -> None:
        torchft: Any = importlib.import_module("torchft")
        self.ours: Any = importlib.import_module("softnic.torchft")
        with contextlib.ExitStack() as stack:
            group, transport = self._group(torchft)
            store = self.torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            limit = timedelta(seconds=self.given.limit)
            manager = torchft.Manager(
                pg=group,
                min_replica_size=1,
                load_state_dict=self.load,
                state_dict=self.state,
                replica_id=f"replica{self.given.number}",
                store_addr="127.0.0.1",
                store_port=store.port,
                rank=0,
                world_size=1,
                lighthouse_addr=self.given.lighthouse,
                hostname="127.0.0.1",
                timeout=limit,
                quorum_timeout=3 * limit,
                connect_timeout=limit,
                quorum_retries=QUORUM_RETRIES,
                checkpoint_transport=transport,
            )
            stack.callback(manager.shutdown, wait=False)
            if transport is not None:
                self.ours.serve_from_all(manager, group, transport)
            model = self.ours.DistributedDataParallel(manager, self.model)  # over Gloo as well: it mends torchft's
            optimizer = torchft.Optimizer(manager, self.inner)
            report_json(phase="managed", at=time.monotonic())
            for number in _until_told():
                before = manager.current_step()
                optimizer.zero_grad()
                loss = self.loss(model, number)
                loss.backward()
                takes_part = manager.is_participating()
                optimizer.step()
                after = manager.current_step()
                self._report(
                    step=after,
                    committed=after > before,
                    counted=after > before and takes_part,
                    members=manager.num_participants(),
                    loss=float(loss.detach()),
                )

    def _group(self, torchft: Any) -> tuple[Any, Any]:
        """Return the reconfigurable process group, and the checkpoint transport (None: torchft's own)."""
        limit = timedelta(seconds=self.given.limit)
        if self.given.backend == GLOO:
            return torchft.ProcessGroupGloo(timeout=limit), None
        group = self.ours.ProcessGroupSoftnic(timeout=limit)
        if self.given.codec:
            importlib.import_module("softnic.torch").compress(group, self.given.codec)
        if self.given.transport != SOFTNIC:
            return group, None
        return group, self.ours.SoftnicTransport(timeout=limit, report=group.notes.on_receipt)

    # -- without it --------------------------------------------------------------------------------------------------

    def train_plain(self) -> None:
        distributed: Any = importlib.import_module("torch.distributed")
        parallel: Any = importlib.import_module("torch.nn.parallel")
        if self.given.backend == SOFTNIC:
            ours: Any = importlib.import_module("softnic.torch")
        master = f"tcp://127.0.0.1:{self.given.port}"
        rank, size = self.given.number, self.given.size
        distributed.init_process_group(self.given.backend, init_method=master, rank=rank, world_size=size)
        if self.given.backend == SOFTNIC:
            ours.compress(None, self.given.codec or None)
        model = parallel.DistributedDataParallel(self.model, find_unused_parameters=True)  # as torchft has it
        report_json(phase="managed", at=time.monotonic())
        for number in _until_told():
            self.inner.zero_grad()
            loss = self.loss(model, number)
            loss.backward()
            self.inner.step()
            self._report(step=number, committed=True, counted=True, members=size, loss=float(loss.detach()))
        os._exit(0)  # the others may have ended in the middle of a call

    def _report(self, step: int, **values: Any) -> None:
        digest = self.digest() if step % self.given.digest_every == 0 else None
        report_json(step=step, at=time.monotonic(), digest=digest, **values)


def _until_told() -> Iterator[int]:
    """Count steps until stdin has ended."""
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        yield number
        number += 1


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--what", choices=[PLAIN, ELASTIC, BUILD], default=ELASTIC)
    options.add_argument("--backend", choices=[SOFTNIC, GLOO], required=True)
    options.add_argument("--number", type=int, required=True, help="of this replica")
    options.add_argument("--size", type=int, help="replicas, without torchft")
    options.add_argument("--port", type=int, help="where ranks meet, without torchft")
    options.add_argument("--lighthouse", help="address of torchft's lighthouse")
    options.add_argument("--limit", type=float, default=10.0, help="seconds of a call")
    options.add_argument("--model", choices=torch_models.NAMES, required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--codec", default="", help="of gradients, over softnic")
    options.add_argument("--transport", choices=[SOFTNIC, "http"], default=SOFTNIC)
    options.add_argument("--padding", type=int, default=0, help="floats that make the state larger")
    options.add_argument("--digest-every", type=int, default=1, metavar="STEPS")
    options.add_argument("--data", type=Path)
    given = options.parse_args()
    logging.basicConfig(level=logging.ERROR)
    replica = Replica(given)
    if given.what == ELASTIC:
        replica.train_elastic()
    elif given.what == PLAIN:
        replica.train_plain()
    return 0


if __name__ == "__main__":
    sys.exit(main())
