"""Gradients of several nodes at every step of one training, computed one after the other in one process.

All nodes hold the same weights, and the exact mean of their gradients moves them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from softnic.experiments import torch_models as models
from softnic.experiments.data import Floats, batches
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.lgc.rank import BATCH, FIRST_RATE, MOMENTUM


def steps(context: Context, model: str, nodes: int, count: int) -> Iterator[list[dict[str, Floats]]]:
    """Yield, for each of `count` steps, each node's gradients by parameter, in arrays of their own."""
    import torch

    data = models.data(model, context.data_path)
    network = models.build(model, context.settings.seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=FIRST_RATE, momentum=MOMENTUM)
    draws = [
        batches(len(data.train_labels[node::nodes]), BATCH, np.random.default_rng([context.settings.seed, node]))
        for node in range(nodes)
    ]
    for step in range(count):
        found: list[dict[str, Floats]] = []
        for node, draw in enumerate(draws):
            drawn = torch.from_numpy(next(draw) * nodes + node)
            network.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(data.train_inputs[drawn]), data.train_labels[drawn])
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = {name: each.grad for name, each in network.named_parameters() if each.grad is not None}
            found.append({name: gradient.numpy().reshape(-1).copy() for name, gradient in gradients.items()})
        yield found
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                mean = np.mean([node[name] for node in found], axis=0)
                parameter.grad = torch.from_numpy(mean).reshape(parameter.shape)
        optimizer.param_groups[0]["lr"] = FIRST_RATE * (1 - step / count)
        optimizer.step()
