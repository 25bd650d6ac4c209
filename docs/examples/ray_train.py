"""Ray Train over softnic: workers as Ray places them, on one machine or many, each node with a NIC.

    python ray_train.py --workers 2

It starts Ray on this machine, or joins the cluster of RAY_ADDRESS.
"""

import argparse
import tempfile
from pathlib import Path

import ray
import torch
from ray.train import Checkpoint, ScalingConfig, get_context, report
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

import softnic.ray
import softnic.torch


def dataset(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share: points of 64 dimensions, and which of 10 fixed directions each lies closest to."""
    directions = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    points = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1 + rank))
    return points, (points @ directions).argmax(1)


def train(config: dict[str, int]) -> None:
    """What every worker runs."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = prepare_model(network)
    softnic.torch.compress(None, "rht:4")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    points, classes = dataset(get_context().get_world_rank())
    for step in range(config["steps"]):
        batch = torch.arange(step * 64, step * 64 + 64) % len(points)
        loss = torch.nn.functional.cross_entropy(model(points[batch]), classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as directory:
        torch.save(network.state_dict(), Path(directory) / "network.pt")
        report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(directory))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()

    ray.init()
    with softnic.ray.nics() as nics:
        print("NICs:", nics)
        trainer = TorchTrainer(
            train,
            train_loop_config={"steps": args.steps},
            torch_config=TorchConfig(backend="softnic"),
            scaling_config=ScalingConfig(num_workers=args.workers),
        )
        print("last loss:", trainer.fit().metrics["loss"])
        for each in nics.stats():
            given, sent = (each.counters[f"tx_offload_{name}_bytes"] for name in ("original", "encoded"))
            print(f"{each.info.ip} sent {given:,} bytes of gradients as {sent:,}")


if __name__ == "__main__":
    main()
