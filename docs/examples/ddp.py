"""Data-parallel training: every rank has the model, and the gradients are averaged as they come.

    torchrun --nproc-per-node 4 ddp.py
    mpirun -n 4 python ddp.py
    softnic run -n 4 --rate 1gbit -- python ddp.py

What is marked `# softnic` is all that tells it from the same program on Gloo.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import softnic.torch  # softnic


def dataset(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share: points of 64 dimensions, and which of 10 fixed directions each lies closest to."""
    directions = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    points = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1 + rank))
    return points, (points @ directions).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    torch.set_num_threads(1)  # ranks share the cores of this machine
    dist.init_process_group("softnic")  # softnic
    rank = dist.get_rank()
    softnic.torch.compress(dist.group.WORLD, "rht:4")  # softnic

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    points, classes = dataset(rank)
    for step in range(steps):
        batch = torch.arange(step * 64, step * 64 + 64) % len(points)
        loss = torch.nn.functional.cross_entropy(model(points[batch]), classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
