"""Training that goes on when a worker dies: torchrun starts all of them again, and they go on from their checkpoint.

    torchrun --nproc-per-node 4 --max-restarts 3 elastic.py --checkpoint state.pt

Of the gradients DGC sends the largest hundredth and keeps the rest for later steps. What it keeps is a part of the
training's state as the model and the optimizer are, and different on every rank: the checkpoint has all of it.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from softnic import gradients
from softnic.torch import hooks


def dataset(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share: points of 64 dimensions, and which of 10 fixed directions each lies closest to."""
    directions = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    points = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1 + rank))
    return points, (points @ directions).argmax(1)


def save(path: Path, state: dict[str, object]) -> None:
    """Whole or not at all: who dies while writing leaves the former file."""
    unfinished = path.with_name(path.name + ".new")
    torch.save(state, unfinished)
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()

    torch.set_num_threads(1)  # ranks share the cores of this machine
    dist.init_process_group("softnic")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method, hook = hooks.hook(gradients.get("dgc:0.01"), model)
    model.register_comm_hook(method, hook)

    begin = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint, weights_only=False)
        begin = saved["step"]
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        method.load_state_dict(saved["methods"][rank])
    print(f"rank {rank}, process {os.getpid()}: begins at step {begin}", flush=True)

    points, classes = dataset(rank)
    for step in range(begin + 1, args.steps + 1):
        batch = torch.arange(step * 64, step * 64 + 64) % len(points)
        loss = torch.nn.functional.cross_entropy(model(points[batch]), classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            methods = [None] * ranks
            dist.all_gather_object(methods, method.state_dict())
            if rank == 0:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
                save(args.checkpoint, {"step": step, "methods": methods, **state})
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
