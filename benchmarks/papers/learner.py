"""Models as the items train them: HDC in numpy, the networks in PyTorch, and images of the size that each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers import networks
from softnic.experiments import torch_models
from softnic.experiments.data import DataSet, Floats, Labels, batches
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.replica import Replica
from softnic.experiments.timeline import Timeline
from softnic.experiments.torch_replica import TorchReplica
from softnic.gradients.awp import leading

if TYPE_CHECKING:
    import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Have PyTorch, if it is installed, compute with one thread: on small networks several only wait."""
    try:
        import torch
    except ImportError:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def learner(model: str, data: DataSet, seed: int) -> Replica:
    """Return the digit classifier (`hdc`), or a small network of PyTorch's. Raises ImportError without torch.

    Its weights change as they are written to; it takes no steps of its own.
    """
    if model == "hdc":
        classifier = Classifier(data.features, np.random.default_rng(seed))
        return NumpyReplica(classifier, MomentumSgd(0, momentum=0.0), Timeline())
    return TorchReplica(networks.build_small(model, seed), lambda _step: 0.0, 0.0)


def samples(model: str, data: DataSet) -> DataSet | torch_models.TorchData:
    """Return the data as `learner` takes it."""
    return data if model == "hdc" else torch_models.pictures(data)


def block_of(model: str) -> Callable[[str], str]:
    """Return the unit that AWP gives one precision (section IV-B): a residual block of ResNet, elsewhere a layer."""
    return leading(1) if model == "resnet50" else str


def enlarged_batches(data: DataSet, size: int, seed: int, side: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches of images for a network of full size, without end."""
    for drawn in batches(len(data.train_labels), size, np.random.default_rng(seed)):
        yield enlarged(data.train_inputs[drawn], data.train_labels[drawn], side)


def enlarged(rows: Floats, labels: Labels, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return square grey images as a batch of 3 x `side` x `side`, with mean 0 and variance 1 over the batch."""
    import torch

    large = torch_models.squares(rows, side)
    large = (large - large.mean()) / large.std().clamp_min(1e-6)
    return large.expand(-1, 3, -1, -1).contiguous(), torch.from_numpy(np.ascontiguousarray(labels))
