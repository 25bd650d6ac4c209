"""Data-parallel training that goes on when a replica dies, by torchft; one replica group is one process.

torchft_lighthouse --bind 127.0.0.1:29510 --min_replicas 2 --join_timeout_ms 200
TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510 softnic run -n 3 --churn 10s -- python torchft_ddp.py
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, Optimizer

import softnic.torch
from softnic.torchft import DistributedDataParallel, ProcessGroupSoftnic, SoftnicTransport, serve_from_all


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--codec", help="of gradients, as in rht:4; without it they are exact")
    args = parser.parse_args()

    rank = int(os.environ["SOFTNIC_RANK"])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    torch.manual_seed(1 + rank)  # each replica has data of its own

    def load(state: dict) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    limit = timedelta(seconds=20)
    group = ProcessGroupSoftnic(limit)
    if args.codec:
        softnic.torch.compress(group, args.codec)
    transport = SoftnicTransport(limit, report=group.notes.on_receipt)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # of this replica group
    manager = Manager(
        pg=group,
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"replica{rank}",
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        timeout=limit,
        checkpoint_transport=transport,
        quorum_retries=5,
    )
    serve_from_all(manager, group, transport)
    replicated, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, inner)
    try:
        while manager.current_step() < args.steps:
            points = torch.randn(32, 64)
            optimizer.zero_grad()  # begins a step: agrees on the quorum
            loss = torch.nn.functional.cross_entropy(replicated(points), points[:, :10].argmax(1))
            loss.backward()
            optimizer.step()  # only if all of the quorum have all gradients
            if manager.current_step() % 100 == 0:
                print(f"step {manager.current_step()}, {manager.num_participants()} replicas, loss {loss:.3f}")
    finally:
        manager.shutdown()


if __name__ == "__main__":
    main()
