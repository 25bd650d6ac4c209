"""One rank of tests/torch/test_features.py: features of torch beyond collectives and plain training."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import softnic.torch
from softnic import MPI, gradients
from softnic.torch import hooks

STEPS = 5


def network(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(10, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 3)]
    return torch.nn.Sequential(*layers)


def losses(module: Any, whole: bool = False) -> list[float]:
    """Train on this rank's data in batches of different sizes. `whole`: the step is compiled, not the module."""
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    data = torch.Generator().manual_seed(dist.get_rank())

    def step(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: Any = module(batch).square().mean()
        loss.backward()
        optimizer.step()
        return cast(torch.Tensor, loss)

    train: Any = torch.compile(step, backend="eager") if whole else step
    return [train(torch.randn(8 + each % 2, 10, generator=data)).item() for each in range(STEPS)]


# -- torch.compile -----------------------------------------------------------------------------------------------------


def plain() -> DistributedDataParallel:
    return DistributedDataParallel(network())


def with_layers() -> DistributedDataParallel:
    module = plain()
    softnic.torch.compress(module, "bounded:10", layers={"3.*": None}, floor_bytes=100)
    return module


def with_method() -> DistributedDataParallel:
    module = plain()
    module.register_comm_hook(*hooks.hook(gradients.get("dgc:0.05"), module))
    return module


def with_bf16() -> DistributedDataParallel:
    module = plain()
    module.register_comm_hook(None, hooks.bf16_compress_hook)
    return module


def compiled() -> dict[str, bool]:
    """Compare each training with its compiled form."""
    found, makes = {}, (plain, with_layers, with_method, with_bf16)
    for make in makes if dist.get_world_size() > 2 else makes[:2]:
        torch._dynamo.reset()
        expected = losses(make())
        found[f"compiled, {make.__name__}"] = losses(torch.compile(make(), backend="eager")) == expected
        if dist.get_world_size() > 2:
            found[f"compiled whole step, {make.__name__}"] = losses(make(), whole=True) == expected
    return found | {"compiled collectives": compiled_collectives()}


def compiled_collectives() -> bool:
    """Compile collectives in one graph."""
    size = dist.get_world_size()

    def program(values: torch.Tensor) -> torch.Tensor:
        total, everybody = values * 2, torch.empty(values.numel() * size)
        dist.all_reduce(total)
        dist.all_gather_into_tensor(everybody, total)
        return everybody + total.repeat(size)

    run: Any = torch.compile(program, backend="eager", fullgraph=True)
    found = [run(torch.full((3,), dist.get_rank() + more)).tolist() for more in (0.0, 1.0, 2.0)]
    ranks = size * (size - 1) // 2
    return found == [[4 * (ranks + size * more)] * 3 * size for more in (0.0, 1.0, 2.0)]


# -- checkpoints -------------------------------------------------------------------------------------------------------


def sharded(seed: int) -> torch.nn.Module:
    module = network(seed)
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(module)
    return module


def whole(module: torch.nn.Module) -> list[torch.Tensor]:
    return [each.full_tensor() if isinstance(each, DTensor) else each for each in module.state_dict().values()]


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    return all(torch.equal(one, other) for one, other in zip(whole(first), whole(second), strict=True))


def loaded_from_rank_0() -> dict[str, bool]:
    """Load the weights of one rank, as usual with FSDP2."""
    source, target = network(7), sharded(dist.get_rank())
    weights = source.state_dict() if dist.get_rank() == 0 else {}
    options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(target, cast(Any, weights), options=options)
    return {"loaded from rank 0": same(source, target)}


def saved(directory: Path) -> dict[str, bool]:
    """Save weights and the optimizer's state, synchronously and in the background."""
    dcp: Any = checkpoint
    found, module = {}, sharded(7)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(4, 10)).square().mean().backward()
    optimizer.step()
    for background in (False, True):
        place = str(directory / f"background {background}")
        model, moments = states.get_state_dict(module, optimizer)
        if background:
            dcp.async_save({"model": model, "optimizer": moments}, checkpoint_id=place).result()
        else:
            dcp.save({"model": model, "optimizer": moments}, checkpoint_id=place)
        other = sharded(dist.get_rank())
        again = torch.optim.Adam(other.parameters())
        model, moments = states.get_state_dict(other, again)
        dcp.load({"model": model, "optimizer": moments}, checkpoint_id=place)
        states.set_state_dict(other, again, model_state_dict=model, optim_state_dict=moments)
        found["saved in the background" if background else "saved"] = same(module, other)
    return found


# -- what is asked of the group ----------------------------------------------------------------------------------------


def asked() -> dict[str, bool]:
    group: Any = dist.group.WORLD
    size = dist.get_world_size()
    counts = torch.tensor([dist.get_rank(), -dist.get_rank() - 1])
    dist.all_reduce(counts, dist.ReduceOp.AVG)
    total = size * (size - 1) // 2
    at_root = torch.zeros(size) if dist.get_rank() == 1 else None
    if hasattr(dist, "gather_single"):  # since 2.14
        dist.gather_single(torch.full((1,), float(dist.get_rank())), at_root, dst=1)
    else:
        group.gather_single(
            torch.zeros(0) if at_root is None else at_root, torch.full((1,), float(dist.get_rank())), 1
        ).wait()
    return {
        "devices": group._device_types == [torch.device("cpu")],
        "object device": dist.distributed_c10d._get_pg_default_device(group) == torch.device("cpu"),
        "gathered in one tensor": at_root is None or at_root.tolist() == list(range(size)),
        "mean of integers": counts.tolist() == [total // size, -((total + size) // size)],
    }


# -- meshes ------------------------------------------------------------------------------------------------------------


def shard_gradients(module: torch.nn.Module) -> list[torch.Tensor]:
    module(torch.randn(8, 10, generator=torch.Generator().manual_seed(dist.get_rank()))).square().mean().backward()
    return [cast(DTensor, each.grad).full_tensor() for each in module.parameters()]


def meshed() -> dict[str, bool]:
    """Check which group's compression applies to which exchange of a device mesh.

    The reduce-scatter of HSDP belongs to the shard group, its all-reduce to the replicate group. A mesh of one
    dimension has the group of all ranks.
    """
    line = init_device_mesh("cpu", (dist.get_world_size(),))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))

    def changed(mesh: Any, *groups: Any) -> bool:
        found = []
        for codec in (None, "bounded:6"):
            for group in groups:
                softnic.torch.compress(group, codec, floor_bytes=0)
            module = network()
            fully_shard(module, mesh=mesh)
            found.append(shard_gradients(module))
        for group in groups:
            softnic.torch.compress(group, None)
        return not all(torch.equal(one, other) for one, other in zip(*found, strict=True))

    replicate, shard = square.get_group("replicate"), square.get_group("shard")
    return {
        "one dimension is all ranks": changed(line, dist.group.WORLD) and changed(line, line.get_group()),
        "two dimensions are not": not changed(square, dist.group.WORLD),
        "replicate": changed(square, replicate),
        "shard": changed(square, shard),
    }


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    directory, world = Path(sys.argv[1]), MPI.COMM_WORLD
    dist.init_process_group(
        "softnic", init_method=f"file://{directory}/store", rank=world.Get_rank(), world_size=world.Get_size()
    )
    results = {**asked(), **compiled(), **loaded_from_rank_0(), **saved(directory)}
    if world.Get_size() > 2:
        results |= meshed()
    print("RESULT " + json.dumps(results), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
