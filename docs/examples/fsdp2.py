"""Fully sharded training (FSDP2): of each weight every rank holds a part, and it gathers a layer when it needs it.

    torchrun --nproc-per-node 4 fsdp2.py
    softnic run -n 4 --rate 1gbit -- python fsdp2.py

What is gathered are weights, which always travel exactly; `softnic.torch.compress` would reach the gradients.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import softnic.torch  # noqa: F401 - registers the backend


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 2 * width),
            torch.nn.GELU(),
            torch.nn.Linear(2 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def dataset(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share: points of 64 dimensions, and which of 10 fixed directions each lies closest to."""
    directions = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    points = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1 + rank))
    return points, (points @ directions).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps

    torch.set_num_threads(1)  # ranks share the cores of this machine
    dist.init_process_group("softnic")
    rank = dist.get_rank()

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block(64) for _ in range(4)), torch.nn.Linear(64, 10))
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    points, classes = dataset(rank)
    for step in range(steps):
        batch = torch.arange(step * 64, step * 64 + 64) % len(points)
        loss = torch.nn.functional.cross_entropy(model(points[batch]), classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 19:
            held, whole = (
                sum(p.numel() for p in part)
                for part in ([p.to_local() for p in model.parameters()], model.parameters())
            )
            print(f"step {step + 1}: loss {loss.item():.3f}, this rank holds {held:,} of {whole:,} weights", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
