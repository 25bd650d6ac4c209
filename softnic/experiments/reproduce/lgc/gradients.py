"""Gradients of several nodes at every step of one training, computed one after the other in one process.

All nodes hold the same weights, and the exact mean of their gradients moves them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from softnic.experiments import torch_models
from softnic.experiments.compare.plan import Training
from softnic.experiments.data import Floats, batches_of_rank
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.lgc.training import BATCH, RATE
from softnic.experiments.torch_replica import TorchReplica


def steps(context: Context, model: str, nodes: int, count: int) -> Iterator[list[dict[str, Floats]]]:
    """Yield, for each of `count` steps, each node's gradients by parameter, in arrays of their own."""
    data, seed = torch_models.data(model, context.data_path), context.settings.seed
    training = Training(BATCH, count, RATE, looks=0)
    replica = TorchReplica(torch_models.build(model, seed), training.linear_rate_at, training.momentum)
    draws = [batches_of_rank(data.train_inputs, data.train_labels, node, nodes, BATCH, seed) for node in range(nodes)]
    for _ in range(count):
        replica.timeline.start()
        found: list[dict[str, Floats]] = []
        for draw in draws:
            replica.forward_backward(*next(draw))
            found.append({name: gradient.copy() for name, gradient in replica.named_gradients.items()})
        yield found
        for name, gradient in replica.named_gradients.items():
            gradient[:] = np.mean([node[name] for node in found], axis=0)
        replica.update()
