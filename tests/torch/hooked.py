"""One rank of test_hooks.py: trainings of one small model, whose results must agree."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

import softnic.torch  # noqa: F401
from softnic import gradients
from softnic.mpi.communicator import Communicator
from softnic.torch import hooks

METHODS = ["feedback:relative:1", "dgc:0.05,clip=0.5", "scalecom:0.05"]


class Training:
    """A model, its optimizer and optionally a method, seeded equally in each training."""

    def __init__(self, rank: int, method: str = "") -> None:
        torch.manual_seed(1)
        self.network = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Tanh(), torch.nn.Linear(40, 4))
        self.model = DistributedDataParallel(self.network, bucket_cap_mb=0.004)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.5)
        self._rank = rank
        if method:
            self.state, function = hooks.hook(gradients.get(method), self.model)
            self.model.register_comm_hook(self.state, function)

    def steps(self, first: int, last: int) -> bytes:
        """Train, and return the bits of the weights."""
        for step in range(first, last):
            draw = torch.Generator().manual_seed(10 * step + self._rank)
            inputs = torch.randn(8, 30, generator=draw)
            self.optimizer.zero_grad()
            self.model(inputs).square().mean().backward()
            self.optimizer.step()
        return b"".join(each.detach().numpy().tobytes() for each in self.network.parameters())

    def saved(self) -> bytes:
        file = io.BytesIO()
        parts: list[Any] = [self.network, self.optimizer, self.state]
        torch.save([part.state_dict() for part in parts], file)
        return file.getvalue()

    def load(self, data: bytes) -> None:
        parts: list[Any] = [self.network, self.optimizer, self.state]
        for part, state in zip(parts, torch.load(io.BytesIO(data)), strict=True):
            part.load_state_dict(state)


def main(comm: Communicator, store: str, report: Callable[..., None]) -> None:
    torch.set_num_threads(1)
    rank = comm.Get_rank()
    dist.init_process_group("softnic", store=FileStore(store, comm.size), rank=rank, world_size=comm.size)
    without = Training(rank).steps(0, 4)
    report(exact_is_no_hook=Training(rank, "exact").steps(0, 4) == without)
    equal, resumed = {}, {}
    for method in METHODS:
        training = Training(rank, method)
        training.steps(0, 3)
        saved = training.saved()
        weights = training.steps(3, 5)
        equal[method] = len(set(comm.allgather(weights))) == 1 and weights != without
        other = Training(rank, method)
        other.load(saved)
        resumed[f"{method} resumed"] = other.steps(3, 5) == weights
    narrow = Training(rank)
    narrow.model.register_comm_hook(None, hooks.bf16_compress_hook)
    narrow.steps(0, 4)
    exact = torch.frombuffer(bytearray(without), dtype=torch.float32)
    found = torch.cat([each.detach().reshape(-1) for each in narrow.network.parameters()])
    close = torch.allclose(found, exact, atol=1e-3) and not torch.equal(found, exact)
    report(**equal, **resumed, bf16=close)
    dist.destroy_process_group()
