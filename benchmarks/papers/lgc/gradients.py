"""Gradients of several nodes at every step of one training, whose weights the exact mean of all moves."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.papers.context import Context
from benchmarks.papers.lgc.training import BATCH, RATE
from benchmarks.papers.workers import Workers, drawn
from softnic.experiments import torch_models
from softnic.experiments.compare.plan import Training
from softnic.experiments.data import Floats
from softnic.experiments.torch_replica import TorchReplica


def steps(context: Context, model: str, nodes: int, count: int) -> Iterator[list[dict[str, Floats]]]:
    """Yield, for each of `count` steps, each node's gradients by parameter, in arrays of their own."""
    data, seed = torch_models.data(model, context.data_path), context.settings.seed
    training = Training(BATCH, count, RATE, looks=0)
    replica = TorchReplica(torch_models.build(model, seed), training.linear_rate_at, training.momentum)

    def step(_number: int, mean: Floats) -> None:
        replica.gradients[:] = mean
        replica.update()

    workers = Workers(replica, drawn(data, nodes, BATCH, seed), step)
    for _ in workers.steps(count):
        named = (replica.named(own.copy()) for own in workers.gradients)
        yield [{name: part.reshape(-1) for name, part in node.items()} for node in named]
