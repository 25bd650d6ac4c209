"""Programs of a virtual-time cluster: exchanges, and training iterations around them.

Exchanges that hosts run step by step are the algorithms of costs.py, with the overlap that its formulas assume: a rank
sends a block, waits for one, sums it, and goes on to the next step. Exchanges by NICs are executed by the collective
engine, as in a daemon (softnic/collectives). Floats are real and are summed; computing only takes time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softnic.collectives.schedule import SendBlock, blocks, plan
from softnic.model.smartnic import LayerTimes
from softnic.sim.processes import Floats, Program, as_bytes
from softnic.sim.rank import SimRank

BLOCK_FLOATS = 16
"""Floats in a coding block of 64 bytes. Ranks exchange whole coding blocks: every codec may cut between them."""


def ring(rank: SimRank, vector: Floats, gamma: float = 0.0, codec: str = "") -> Program:
    """Sum vectors in place by Algorithm 1 of INCEPTIONN, with `gamma` seconds a byte for sums.

    The vector consists of whole coding blocks. With a codec, ranks may end with different bits: an owner does not round
    its own block.
    """
    parts = blocks("allreduce", "ring", vector.size // BLOCK_FLOATS, rank.size)
    own = [vector[part.start * BLOCK_FLOATS : part.stop * BLOCK_FLOATS] for part in parts]
    received = np.empty(max(block.size for block in own), np.float32)
    for step in plan("allreduce", "ring", rank.index, rank.size):
        block = own[step.block]
        if not block.size:
            continue
        if isinstance(step, SendBlock):
            rank.send(step.peer, as_bytes(block), codec)
            continue
        into = received[: block.size] if step.combine else block
        yield rank.receive(step.peer, as_bytes(into))
        if step.combine:
            yield rank.compute(block.nbytes * gamma)
            block += into


def worker_aggregator(rank: SimRank, vector: Floats, gamma: float = 0.0, codec: str = "") -> Program:
    """Exchange as in INCEPTIONN's baseline: the last rank, which has no gradients of its own, sums those of all others
    and sends them the sum, which stands for the weights. With a codec, gradients are compressed, weights are not.

    All workers send at once, and the aggregator begins to sum when it has all gradients.
    """
    aggregator = rank.size - 1
    if rank.index != aggregator:
        rank.send(aggregator, as_bytes(vector), codec)
        yield rank.receive(aggregator, as_bytes(vector))
        return
    received = [np.empty_like(vector) for _ in range(aggregator)]
    yield from [rank.receive(worker, as_bytes(each)) for worker, each in enumerate(received)]
    yield rank.compute((aggregator - 1) * vector.nbytes * gamma)
    vector[:] = np.sum(received, axis=0, dtype=np.float32)
    for worker in range(aggregator):
        rank.send(worker, as_bytes(vector))


def nic(rank: SimRank, vector: Floats, codec: str = "", algorithm: str = "ring") -> Program:
    """Sum vectors in place by the NICs, and wait."""
    yield rank.post(vector, codec, algorithm)


def barrier(rank: SimRank) -> Program:
    """Wait for all ranks by the NICs."""
    yield rank.barrier()


def connect(rank: SimRank, algorithm: str) -> Program:
    """Connect with the ranks that an all-reduce by this algorithm needs."""
    yield rank.connect(algorithm)


def sequential(rank: SimRank, times: Sequence[LayerTimes], exchange: Program) -> Program:
    """Run an iteration without overlap: compute, exchange all gradients, update (`smartnic.sequential`)."""
    yield rank.compute(sum(layer.forward_s + layer.backward_s for layer in times))
    yield from exchange
    yield rank.compute(sum(layer.update_s for layer in times))


def overlapped(rank: SimRank, times: Sequence[LayerTimes], gradients: Sequence[Floats], codec: str = "") -> Program:
    """Run an iteration as in Fig. 3b of Ma et al. (`smartnic.overlapped`).

    A layer's all-reduce is posted when its gradients are complete and the previous all-reduce is done. Meanwhile the
    layer above is updated and the gradients of the layer below are computed.
    """
    yield rank.compute(sum(layer.forward_s for layer in times))
    yield rank.compute(times[-1].backward_s)
    above = None
    for index in range(len(times) - 1, -1, -1):
        pending = rank.post(gradients[index], codec)
        if above is not None:
            yield rank.compute(times[above].update_s)
        if index:
            yield rank.compute(times[index - 1].backward_s)
        yield pending
        above = index
    yield rank.compute(times[0].update_s)
