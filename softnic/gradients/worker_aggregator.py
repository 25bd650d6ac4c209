"""Worker-aggregator training over a communicator, for loops of one's own: with numpy arrays, or PyTorch's on the CPU.

All ranks but one are workers. The exchange of Li et al. (MICRO 2018, section II-B) and of Zhuang et al. (A2DTWP,
section III), whose CPU is the aggregator here and whose GPUs are the workers:

1. The aggregator publishes the weights: each layer as its precision policy has it (awp.py, adt.py).
2. Each worker computes the gradients of its own mini-batch with the weights that came.
3. Workers send gradients to the aggregator, by any codec; it receives one worker's after the other, and averages them.
4. The aggregator takes the optimizer's step on its own weights, which keep all 32 bits, and goes on with 1.

    exchange = WorkerAggregator(comm, precision=AWP(-2e-3, 4000), codec="bounded:10")
    exchange.publish(weights)
    for batch in batches:
        if not exchange.aggregates:
            compute(batch)                      # fills gradients
        exchange.collect(gradients)             # on the aggregator they are the workers' mean now
        if exchange.aggregates:
            optimizer.step()                    # changes weights
        exchange.publish(weights)

NOT worth it where an all-reduce is possible: the aggregator's link carries the gradients of all workers one after the
other, that of a ring 2 (p - 1) / p times one rank's.
"""

from __future__ import annotations

import numpy as np

from softnic.comm.communicator import Communicator
from softnic.gradients.adt import WeightBroadcast
from softnic.gradients.awp import Array, Precision, Weights
from softnic.ipc import regions


class WorkerAggregator:
    """One rank's end of it. `aggregator` is a rank, the last one by default; the others are workers.

    `precision` counts on the aggregator only; `codec` is that of the gradients, the same on all ranks (None: exact).
    Gradients and weights are named float32 arrays, whose names, shapes and order are the same on all ranks and in all
    calls. Raises ValueError for fewer than two ranks.
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
        self._codec = codec
        self._aggregator = comm.size - 1 if aggregator is None else aggregator
        self._workers = [rank for rank in range(comm.size) if rank != self._aggregator]
        self._flat: Array = np.empty(0, np.float32)
        self._sum: Array = np.empty(0, np.float32)
        self.weights = WeightBroadcast(comm, self._aggregator, precision)

    @property
    def aggregates(self) -> bool:
        """Whether this rank is the aggregator."""
        return self._comm.rank == self._aggregator

    def collect(self, gradients: Weights) -> None:
        """Workers send theirs, which stay as they are; the aggregator's arrays get the mean over the workers."""
        ends = np.cumsum([array.size for array in gradients.values()]).tolist()
        if self._flat.size != ends[-1]:
            self._flat, self._sum = regions.empty(ends[-1]), np.empty(ends[-1], np.float32)
        pieces = zip(gradients.values(), np.split(self._flat, ends[:-1]), strict=True)
        if not self.aggregates:
            for array, piece in pieces:
                piece[:] = array.reshape(-1)
            self._send()
            return
        self._sum[:] = 0
        for worker in self._workers:
            self._receive(worker)
            self._sum += self._flat
        np.divide(self._sum, np.float32(len(self._workers)), out=self._flat)
        for array, piece in pieces:
            array[...] = piece.reshape(array.shape)

    def publish(self, weights: Weights) -> None:
        """The aggregator sends its weights, which stay as they are; the workers' arrays get what came of them."""
        if self.aggregates:
            self.weights.publish(weights)
        else:
            self.weights.receive(weights)

    def _send(self) -> None:
        if self._codec is None:
            self._comm.Send(self._flat, self._aggregator)
        else:
            self._comm.Send_comp(self._flat, self._aggregator, codec=self._codec)

    def _receive(self, worker: int) -> None:
        if self._codec is None:
            self._comm.Recv(self._flat, worker)
        else:
            self._comm.Recv_comp(self._flat, worker, codec=self._codec)
