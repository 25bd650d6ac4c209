"""Programs of a virtual-time cluster: the exchanges of INCEPTIONN as hosts run them, step by step.

These are the algorithms that costs.py has formulas for, with no more overlap than these assume: a rank sends a block,
waits for one, sums it, and goes on to the next step. Floats are real, and summed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softnic.comm.schedule import partition, ring_allreduce
from softnic.model.cluster import Rank
from softnic.model.processes import Program

Floats = npt.NDArray[np.float32]

LANES = 16
"""Floats of a stretch of 64 bytes: blocks are of whole ones, so that every codec may cut where they begin."""


def ring(rank: Rank, vector: Floats, gamma: float, codec: str = "") -> Program:
    """Algorithm 1 of INCEPTIONN, in place, with `gamma` seconds a byte for sums. Whole stretches of 64 bytes."""
    blocks = [vector[part.start * LANES : part.stop * LANES] for part in partition(vector.size // LANES, rank.size)]
    came = np.empty(max(block.size for block in blocks), np.float32)
    for send, receive in ring_allreduce(rank.index, rank.size):
        if send is not None:
            rank.send(send.peer, _raw(blocks[send.block]), codec)
        if receive is None:
            continue
        block = blocks[receive.block]
        into = came[: block.size] if receive.combine else block
        yield rank.receive(receive.peer, _raw(into))
        if receive.combine:
            yield rank.compute(block.nbytes * gamma)
            block += into


def worker_aggregator(rank: Rank, vector: Floats, gamma: float, codec: str = "") -> Program:
    """The last rank is the aggregator: it sums what the others send, and sends the sum back to each. With a codec,
    compressed on the way there; sums stand for weights, which come back exact."""
    aggregator = rank.size - 1
    if rank.index != aggregator:
        rank.send(aggregator, _raw(vector), codec)
        yield rank.receive(aggregator, _raw(vector))
        return
    came = [np.empty_like(vector) for _ in range(aggregator)]
    for wanted in [rank.receive(worker, _raw(each)) for worker, each in enumerate(came)]:
        yield wanted
    yield rank.compute((aggregator - 1) * vector.nbytes * gamma)
    vector[:] = np.sum(came, axis=0, dtype=np.float32)
    for worker in range(aggregator):
        rank.send(worker, _raw(vector))


def _raw(array: Floats) -> memoryview:
    return memoryview(array).cast("B")
