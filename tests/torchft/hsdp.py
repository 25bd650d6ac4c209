"""A rank of tests/torchft/test_hsdp.py: weights sharded over a group's two ranks, groups that die and come back.

    python -m tests.torchft.hsdp LIGHTHOUSE GROUP RANK PORT STEPS [CODEC]

Prints a line for each step that was committed: its number, how many groups took part, and of this rank's shards a
checksum and the sum of squares. PORT is where the group's ranks meet.
"""

from __future__ import annotations

import sys
import time
import zlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torchft
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torchft.process_group import ManagedProcessGroup

import softnic.torch
from softnic.torchft import ProcessGroupSoftnic

RANKS = 2
"""Of a group."""
WIDTH = 96
LIMIT = timedelta(seconds=20)
PAUSE_S = 0.1
"""A step's, so that a group that starts has time to join."""


def built() -> torch.nn.Sequential:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))


def loss_of(model: torch.nn.Module, step: int, group: int, rank: int) -> Any:
    """Return the loss of a step, whose inputs are a rank's own."""
    draw = torch.Generator().manual_seed(1000 * step + 10 * group + rank)
    return model(torch.randn(8, WIDTH, generator=draw)).square().mean()


def main() -> None:
    lighthouse, group, rank, port, steps = sys.argv[1], *map(int, sys.argv[2:6])
    softnic.torch.register()
    stores: Any = dist  # torch's stubs leave its stores out
    store = stores.TCPStore("127.0.0.1", port, RANKS, is_master=rank == 0, wait_for_workers=False)
    dist.init_process_group("softnic", store=stores.PrefixStore("group", store), rank=rank, world_size=RANKS)
    model = built()
    mesh = init_device_mesh("cpu", (RANKS,))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    # Taken once: `state_dict` of FSDP2 reshards, and torchft asks for the state while gradients are computed.
    weights: dict[str, Any] = dict(model.named_parameters())
    shards: dict[str, torch.Tensor] = {name: each.to_local().detach() for name, each in weights.items()}

    def load(state: dict[str, torch.Tensor]) -> None:
        for name, each in shards.items():
            each.copy_(state[name])

    across = ProcessGroupSoftnic(LIMIT)
    if len(sys.argv) > 6:
        softnic.torch.compress(across, sys.argv[6])
    manager = torchft.Manager(
        pg=across,
        min_replica_size=1,
        init_sync=False,  # all begin with the same weights
        load_state_dict=load,
        state_dict=lambda: shards,
        replica_id=f"group{group}",
        rank=rank,
        world_size=RANKS,
        store_addr="127.0.0.1",
        store_port=port,
        lighthouse_addr=lighthouse,
        hostname="127.0.0.1",
        timeout=LIMIT,
        quorum_retries=5,
    )
    replicated = ManagedProcessGroup(manager)
    replicated.register("replicate")

    def average(shard: torch.Tensor) -> None:
        dist.all_reduce(shard, op=dist.ReduceOp.AVG, group=replicated)

    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_all_reduce_hook(average)
    optimizer = torchft.Optimizer(manager, inner)
    while (step := manager.current_step()) < steps:
        optimizer.zero_grad()
        loss_of(model, step, group, rank).backward()
        optimizer.step()
        if manager.current_step() > step:
            digest, squares = 0, 0.0
            for each in shards.values():
                digest = zlib.crc32(each.numpy().tobytes(), digest)
                squares += float(each.double().square().sum())
            print(manager.current_step(), manager.num_participants(), digest, squares, flush=True)
        time.sleep(PAUSE_S)
    manager.shutdown(wait=False)
    across.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
