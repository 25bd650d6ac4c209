"""Worker-aggregator training over a communicator, for users' own loops with numpy arrays or PyTorch tensors on the CPU.

All ranks but one are workers. The exchange is that of Li et al. (MICRO 2018, section II-B) and of Zhuang et al.
(A2DTWP, section III), where the CPU is the aggregator and the GPUs are the workers:

1. The aggregator publishes the weights, each layer in the precision that its policy chooses (awp.py, adt.py).
2. Each worker computes the gradients of its own mini-batch with the received weights.
3. Workers send gradients to the aggregator, with any codec; it receives them one after the other and averages them.
4. The aggregator takes the optimizer's step on its own weights, which keep all 32 bits, and continues with 1.

    exchange = WorkerAggregator(comm, precision=AWP(-2e-3, 4000), codec="bounded:10")
    exchange.publish(weights)
    for batch in batches:
        if not exchange.aggregates:
            compute(batch)                      # fills gradients
        exchange.collect(gradients)             # on the aggregator: the workers' mean
        if exchange.aggregates:
            optimizer.step()                    # changes weights
        exchange.publish(weights)

Not worthwhile where an all-reduce is possible: the aggregator's link carries the gradients of all p workers, a link of
a ring only 2 (p - 1) / p times those of one.
"""

from __future__ import annotations

import numpy as np

from softnic.gradients.adt import WeightBroadcast
from softnic.gradients.awp import Array, Precision, Weights
from softnic.ipc import regions
from softnic.mpi.communicator import Communicator


class GradientLeg:
    """The leg of the gradients, from workers to the rank `aggregator`, by a codec (None: exact)."""

    def __init__(self, comm: Communicator, aggregator: int, codec: str | None) -> None:
        self._comm = comm
        self.aggregator = aggregator
        self._codec = codec

    def send(self, gradients: Array) -> None:
        """Send a worker's gradients."""
        if self._codec is None:
            self._comm.Send(gradients, self.aggregator)
        else:
            self._comm.Send_comp(gradients, self.aggregator, codec=self._codec)

    def receive(self, gradients: Array, worker: int) -> None:
        """Receive the gradients of one worker, on the aggregator."""
        if self._codec is None:
            self._comm.Recv(gradients, worker)
        else:
            self._comm.Recv_comp(gradients, worker, codec=self._codec)


class WorkerAggregator:
    """One rank's side of the exchange.

    Gradients and weights are float32 arrays by name, in the same order and of the same shapes on all ranks and in all
    calls.

    Parameters
    ----------
    comm : Communicator
    precision : Precision, optional
        Policy for the precision of weights (awp.py), used on the aggregator only. Default: 32 bits.
    codec : str, optional
        Of the gradients, the same on all ranks. Default: exact.
    aggregator : int, optional
        Its rank. Default: the last rank.

    Raises
    ------
    ValueError
        There are fewer than two ranks.
    """

    def __init__(
        self,
        comm: Communicator,
        *,
        precision: Precision | None = None,
        codec: str | None = None,
        aggregator: int | None = None,
    ) -> None:
        if comm.size < 2:
            raise ValueError("an aggregator needs at least one worker: run two ranks or more")
        self._comm = comm
        root = comm.size - 1 if aggregator is None else aggregator
        self._leg = GradientLeg(comm, root, codec)
        self._workers = [rank for rank in range(comm.size) if rank != root]
        self._flat: Array = np.empty(0, np.float32)
        self._sum: Array = np.empty(0, np.float32)
        self.weights = WeightBroadcast(comm, root, precision)

    @property
    def aggregates(self) -> bool:
        """Whether this rank is the aggregator."""
        return self._comm.rank == self._leg.aggregator

    def collect(self, gradients: Weights) -> None:
        """Send the gradients of workers, and replace the aggregator's by their mean."""
        ends = np.cumsum([array.size for array in gradients.values()]).tolist()
        if self._flat.size != ends[-1]:
            self._flat, self._sum = regions.empty(ends[-1]), np.empty(ends[-1], np.float32)
        pieces = zip(gradients.values(), np.split(self._flat, ends[:-1]), strict=True)
        if not self.aggregates:
            for array, piece in pieces:
                piece[:] = array.reshape(-1)
            self._leg.send(self._flat)
            return
        self._sum[:] = 0
        for worker in self._workers:
            self._leg.receive(self._flat, worker)
            self._sum += self._flat
        np.divide(self._sum, np.float32(len(self._workers)), out=self._flat)
        for array, piece in pieces:
            array[...] = piece.reshape(array.shape)

    def publish(self, weights: Weights) -> None:
        """Send the aggregator's weights, and replace the workers' by what they receive."""
        if self.aggregates:
            self.weights.publish(weights)
        else:
            self.weights.receive(weights)
