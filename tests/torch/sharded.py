"""One rank of tests/torch/test_sharded.py: trains models that are sharded in several ways, and reports the results."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import softnic.torch
from softnic import MPI
from softnic.torch.backend import SoftnicGroup
from tests.torch.trained import report

STEPS = 5
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 96), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(96, 48))


def sharded(mesh: DeviceMesh | None = None, **options: Any) -> torch.nn.Sequential:
    model = network()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> float:
    """Train to copy the input, on this rank's data. Returns the last loss."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.3)
    data, loss = torch.Generator().manual_seed(dist.get_rank()), torch.zeros(())
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(16, 48, generator=data)
        loss = (model(x).float() - x).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def whole(model: torch.nn.Module) -> torch.Tensor:
    parts = (each.full_tensor() if isinstance(each, DTensor) else each for each in model.parameters())
    return torch.cat([part.detach().flatten() for part in parts])


def trained(compress: Callable[[torch.nn.Module], object], *args: Any, **options: Any) -> torch.Tensor:
    model = sharded(*args, **options)
    compress(model)
    train(model)
    return whole(model)


def lossless(model: torch.nn.Module) -> None:
    softnic.torch.compress(model, weights="exact:16", floor_bytes=0)


def both_ways(model: torch.nn.Module) -> None:
    softnic.torch.compress(model, gradients="rht:4", weights="exact:16", floor_bytes=0)


def same_everywhere(tensor: torch.Tensor) -> bool:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, tensor.numpy().tobytes())
    return len(set(found)) == 1


def weights_are_exact() -> dict[str, Any]:
    """Check that lossless weights change no bit, in whatever way they are sharded."""
    found = {}
    ways: dict[str, dict[str, Any]] = {
        "fp32": {},
        "bf16": {"mp_policy": BF16},
        "kept": {"mp_policy": BF16, "reshard_after_forward": False},
        "over two": {"mp_policy": BF16, "reshard_after_forward": 2},
    }
    for name, options in ways.items():
        found[f"exact {name}"] = torch.equal(trained(lambda _: None, **options), trained(lossless, **options))
    return found


def gradients_are_near() -> dict[str, Any]:
    exact, near = trained(lambda _: None, mp_policy=BF16), trained(both_ways, mp_policy=BF16)
    change = (exact - whole(network())).norm()
    return {"same bits": same_everywhere(near), "off by": float((near - exact).norm() / change)}


def policy_is_respected() -> dict[str, Any]:
    """Report the element types in which gradients and weights are exchanged."""
    seen: dict[str, set[str]] = {"scatter_sum": set(), "gather_shards": set()}

    def recording(name: str) -> Any:
        call = getattr(SoftnicGroup, name)

        def recorded(group: SoftnicGroup, output: torch.Tensor, *rest: Any) -> Any:
            seen[name].add(str(output.dtype))
            return call(group, output, *rest)

        return mock.patch.object(SoftnicGroup, name, recorded)

    with recording("scatter_sum"), recording("gather_shards"):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        trained(both_ways, mp_policy=policy)
    return {name: sorted(types) for name, types in seen.items()}


def replicated() -> dict[str, Any]:
    """Check a mesh of two replicas (HSDP)."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    exact = trained(lambda _: None, mesh, mp_policy=BF16)
    lossless_too = torch.equal(exact, trained(lossless, mesh, mp_policy=BF16))
    near = trained(both_ways, mesh, mp_policy=BF16)
    change = (exact - whole(network())).norm()
    codec = cast(SoftnicGroup, mesh.get_group("replicate")).compression.codec
    return {
        "hsdp exact": lossless_too,
        "hsdp same bits": same_everywhere(near),
        "hsdp off by": float((near - exact).norm() / change),
        "hsdp codec": codec,
    }


def checkpointed(directory: Path) -> dict[str, Any]:
    """Save a compressed model, and load it into one that is sharded over another mesh."""
    saved = sharded(mp_policy=BF16)
    both_ways(saved)
    train(saved)
    save(saved.state_dict(), checkpoint_id=directory)
    loaded = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")), mp_policy=BF16)
    both_ways(loaded)
    state = loaded.state_dict()
    load(state, checkpoint_id=directory)
    loaded.load_state_dict(state)
    return {"checkpoint": torch.equal(whole(saved), whole(loaded))}


def optimizer_is_sharded() -> dict[str, Any]:
    """Check a ZeRO-style optimizer, and DistributedDataParallel's broadcast."""
    found = []
    for weights in (None, "exact:32"):
        softnic.torch.compress(None, weights=weights, floor_bytes=0)
        torch.manual_seed(dist.get_rank())  # the broadcast makes them equal
        model = DistributedDataParallel(torch.nn.Linear(48, 48))
        begun = same_everywhere(whole(model))
        train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))
        found.append((begun, whole(model)))
    softnic.torch.compress(None)
    return {"zero": bool(found[0][0] and found[1][0]) and torch.equal(found[0][1], found[1][1])}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    directory, comm = Path(sys.argv[1]), MPI.COMM_WORLD
    store = f"file://{directory / 'store'}"
    dist.init_process_group("softnic", init_method=store, rank=comm.rank, world_size=comm.size)
    results = {**weights_are_exact(), **gradients_are_near(), **policy_is_respected(), **replicated()}
    report(**results, **checkpointed(directory / "checkpoint"), **optimizer_is_sharded())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
