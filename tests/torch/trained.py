"""One rank of tests/torch/test_processes.py: trains and makes calls over softnic and Gloo, and reports the results."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import softnic.torch
from softnic import MPI

STEPS = 4


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)]
    return torch.nn.Sequential(*layers)


def train(module: torch.nn.Module) -> list[float]:
    """Train on this rank's data. Returns the losses."""
    optimizer, losses = torch.optim.SGD(module.parameters(), 0.1), []
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = module(torch.randn(8, 10, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in module.parameters()])


def with_batch_norm() -> torch.nn.Module:
    module = model()
    module[1] = torch.nn.BatchNorm1d(64)
    return module


def data_parallel(gloo: Any) -> dict[str, Any]:
    """Compare with Gloo. The sum of two ranks does not depend on the order."""
    ours = DistributedDataParallel(with_batch_norm(), bucket_cap_mb=0.005)
    theirs = DistributedDataParallel(with_batch_norm(), process_group=gloo, bucket_cap_mb=0.005)
    same_losses = train(ours) == train(theirs)
    return {"ddp losses": same_losses, "ddp weights": torch.equal(weights(ours), weights(theirs))}


def power_sgd(gloo: Any) -> dict[str, Any]:
    found = []
    for group in (None, gloo):
        module = DistributedDataParallel(model(), process_group=group)
        state = powerSGD_hook.PowerSGDState(group, 1, start_powerSGD_iter=2, min_compression_rate=0.5)
        module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(module)
        found.append(weights(module))
    return {"powersgd": torch.equal(*found)}


def sharded() -> dict[str, Any]:
    module, plain = model(), DistributedDataParallel(model())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    train(module)
    train(plain)
    full = torch.cat([cast(DTensor, each).full_tensor().detach().flatten() for each in module.parameters()])
    return {"fsdp2": torch.allclose(full, weights(plain), rtol=1e-5, atol=1e-7)}


class Counter(Joinable):
    """Counts the steps of all ranks, also of those that have joined."""

    class Hook(JoinHook):
        def __init__(self, counter: Counter) -> None:
            self.counter = counter

        def main_hook(self) -> None:
            dist.all_reduce(torch.zeros(1), group=self.counter.group)

        def post_hook(self, is_last_joiner: bool) -> None:
            rank = torch.tensor([dist.get_rank() if is_last_joiner else -1])
            dist.all_reduce(rank, dist.ReduceOp.MAX, group=self.counter.group)
            dist.broadcast(self.counter.steps, int(rank), group=self.counter.group)

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        self.steps = torch.zeros(1)

    def __call__(self) -> None:
        Join.notify_join_context(self)
        step = torch.ones(1)
        dist.all_reduce(step, group=self.group)
        self.steps += step

    def join_hook(self, **_: Any) -> JoinHook:
        return Counter.Hook(self)

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> Any:
        return self.group


def uneven(group: Any, divide: bool, zero: bool) -> tuple[torch.Tensor, float]:
    """Train on inputs of which each rank has another number. Returns the weights and the steps of all ranks."""
    module: Any = DistributedDataParallel(with_batch_norm(), process_group=group, bucket_cap_mb=0.005)
    optimizer: Any = torch.optim.SGD(module.parameters(), 0.1)
    if zero:
        optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, process_group=group, lr=0.1)
    joinables: list[Any] = [module, *([optimizer] if zero else []), counter := Counter(group)]
    data = torch.Generator().manual_seed(dist.get_rank())
    with Join(joinables, divide_by_initial_world_size=divide):
        for _ in range(2 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            module(torch.randn(8, 10, generator=data)).square().mean().backward()
            optimizer.step()
            counter()
    with module.join(divide_by_initial_world_size=divide):
        for _ in range(1 + dist.get_rank()):
            module(torch.randn(8, 10, generator=data)).square().mean().backward()
    gradients = torch.cat([each.grad.flatten() for each in module.parameters()])
    return torch.cat([weights(module), gradients]), counter.steps.item()


def joined(gloo: Any) -> dict[str, Any]:
    """Compare trainings on uneven inputs with Gloo, in all forms of join."""
    found = []
    for divide, zero in ((True, False), (False, False), (False, True)):
        (ours, steps), (theirs, others) = uneven(dist.group.WORLD, divide, zero), uneven(gloo, divide, zero)
        found.append(torch.equal(ours, theirs) and steps == others == 6.0)
    return {"uneven inputs": found}


def counted(gloo: Any) -> dict[str, Any]:
    """Compare the version counters of results with Gloo's."""

    def versions(group: Any) -> list[int]:
        dense, rows = (
            torch.ones(4),
            torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2), (4,), check_invariants=True),
        )
        objects: list[Any] = [None, None]
        for tensor in (dense, rows):
            dist.all_reduce(tensor, group=group)
        dist.broadcast(dense, 0, group=group)
        dist.all_gather_object(objects, 1, group=group)
        return [dense._version, rows._version]

    return {"version counters": versions(None) == versions(gloo)}


def compressed() -> dict[str, Any]:
    """Compress by layers: those named exact remain exact, others differ slightly."""
    exact, chosen, none = (DistributedDataParallel(model()) for _ in range(3))
    softnic.torch.compress(none, None)
    softnic.torch.compress(chosen, "bounded:8", layers={"3.*": None}, floor_bytes=1000)
    gradients = []
    for module in (exact, none, chosen):
        module(torch.ones(8, 10) * (dist.get_rank() + 1)).square().mean().backward()
        gradients.append({name: each.grad.clone() for name, each in module.module.named_parameters()})
    plain, without, by_layer = gradients
    kept = [name for name in plain if torch.equal(plain[name], by_layer[name])]
    near = all(torch.allclose(plain[name], by_layer[name], atol=0.05) for name in plain)
    same = all(torch.equal(plain[name], without[name]) for name in plain)
    return {"layers without codec": same, "layers kept": kept, "layers near": near}


def settled() -> softnic.torch.GroupStats:
    """Return the figures once all that was sent has been acknowledged: frames and reports of them may be lost."""
    deadline, found = time.monotonic() + 60, softnic.torch.stats()
    while time.monotonic() < deadline:
        time.sleep(0.5)  # more than a retransmission timeout
        earlier, found = found, softnic.torch.stats()
        if found == earlier:
            return found
    raise AssertionError("bytes are sent without end")


def measured() -> dict[str, Any]:
    """Check the figures of a sum of four bits a value: this rank sends half of each buffer twice."""
    before, count = settled(), 1 << 18
    softnic.torch.compress(None, "rht:4")
    dist.all_reduce(torch.randn(count))
    dist.barrier()
    softnic.torch.compress(None, None)
    found = settled() - before
    near = 4 * count <= found.given_bytes < 4.1 * count and found.sent_bytes < found.wire_bytes < found.given_bytes
    return {"stats": found.calls == 2 and near and 6 < found.ratio < 8 and found.exchange_s > 0}


def around() -> dict[str, Any]:
    """Check objects, sub-groups, functional collectives, and a communicator of the group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    alone = dist.new_group([1])
    tensor = torch.ones(3)
    if rank == 1:
        dist.all_reduce(tensor, group=alone)
    functional: Any = dist._functional_collectives
    total = functional.wait_tensor(functional.all_reduce(torch.full((2,), rank + 1.0), "sum", dist.group.WORLD))
    comm = softnic.torch.communicator()
    return {
        "objects": objects == [{"rank": each} for each in range(size)],
        "sub-group": tensor.tolist() == [1.0] * 3,
        "functional": total.tolist() == [3.0, 3.0],
        "communicator": comm.allreduce(rank + 1, MPI.SUM) == 3 and softnic.torch.communicator(None) is comm,
    }


def report(**what: Any) -> None:
    sys.stdout.write("RESULT " + json.dumps(what) + "\n")  # one write: launchers merge the lines of ranks
    sys.stdout.flush()


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("softnic", init_method=f"file://{sys.argv[1]}", rank=MPI.COMM_WORLD.rank, world_size=2)
    gloo = dist.new_group(backend="gloo")
    report(**data_parallel(gloo), **power_sgd(gloo), **joined(gloo), **counted(gloo))
    report(**sharded(), **compressed(), **measured(), **around())
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    try:
        dist.all_reduce(torch.zeros(1000))
    except dist.DistBackendError as error:
        report(error=str(error), seconds=time.monotonic() - begun)


if __name__ == "__main__":
    main()
