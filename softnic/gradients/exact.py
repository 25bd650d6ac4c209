"""The exact mean: the reference for all other methods."""

from __future__ import annotations

import numpy as np

from softnic.gradients.flat import Flat, cut
from softnic.gradients.method import Gradients, Method
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator


class Exact(Method):
    """The exact mean.

    1. Multiply by 1/N before the sum, as PyTorch does: nothing overflows, and the bits are those of training without a
       method.
    2. All-reduce.

    Not worthwhile where the network is the bottleneck.
    """

    name = "exact"

    def __init__(self) -> None:
        super().__init__()
        self._flat = Flat()

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        flat = self._flat.get(gradients)
        for _, gradient, part in cut(flat, gradients):
            np.multiply(gradient, np.float32(1 / comm.size), out=part)
        comm.Allreduce(IN_PLACE, flat)
        for _, gradient, part in cut(flat, gradients):
            gradient[:] = part
        self._step(gradients)
        self.stats.count(gradients, flat.nbytes)
