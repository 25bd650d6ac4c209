"""Programs of a virtual-time cluster: exchanges, and whole training iterations around them.

Those that hosts run step by step are the algorithms that costs.py has formulas for, with no more overlap than these
assume: a rank sends a block, waits for one, sums it, and goes on to the next step. What NICs run is executed as in a
daemon (softnic/collectives). Floats are real, and summed; only computing is a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softnic.collectives.schedule import Send, blocks, plan
from softnic.model.smartnic import LayerTimes
from softnic.sim.processes import Floats, Program, as_bytes
from softnic.sim.rank import SimRank

BLOCK_FLOATS = 16
"""Floats of a stretch of 64 bytes: blocks are of whole ones, so that every codec may cut where they begin."""


def ring(rank: SimRank, vector: Floats, gamma: float = 0.0, codec: str = "") -> Program:
    """Algorithm 1 of INCEPTIONN in place, with `gamma` seconds a byte for sums.

    The vector is of whole stretches of 64 bytes. Ranks need not end with the same bits here: none rounds what it owns.
    """
    parts = blocks("allreduce", "ring", vector.size // BLOCK_FLOATS, rank.size)
    own = [vector[part.start * BLOCK_FLOATS : part.stop * BLOCK_FLOATS] for part in parts]
    came = np.empty(max(block.size for block in own), np.float32)
    for step in plan("allreduce", "ring", rank.index, rank.size):
        block = own[step.block]
        if not block.size:
            continue
        if isinstance(step, Send):
            rank.send(step.peer, as_bytes(block), codec)
            continue
        into = came[: block.size] if step.combine else block
        yield rank.receive(step.peer, as_bytes(into))
        if step.combine:
            yield rank.compute(block.nbytes * gamma)
            block += into


def worker_aggregator(rank: SimRank, vector: Floats, gamma: float = 0.0, codec: str = "") -> Program:
    """INCEPTIONN's baseline: the last rank, which has no gradients of its own, sums those of all others and sends each
    what came of it. With a codec, gradients are compressed; weights, for which the sum stands here, never are.

    All workers send at once, and the aggregator begins to sum when it has all.
    """
    aggregator = rank.size - 1
    if rank.index != aggregator:
        rank.send(aggregator, as_bytes(vector), codec)
        yield rank.receive(aggregator, as_bytes(vector))
        return
    came = [np.empty_like(vector) for _ in range(aggregator)]
    yield from [rank.receive(worker, as_bytes(each)) for worker, each in enumerate(came)]
    yield rank.compute((aggregator - 1) * vector.nbytes * gamma)
    vector[:] = np.sum(came, axis=0, dtype=np.float32)
    for worker in range(aggregator):
        rank.send(worker, as_bytes(vector))


def nic(rank: SimRank, vector: Floats, codec: str = "", algorithm: str = "ring") -> Program:
    """An all-reduce by the NICs, waited for."""
    yield rank.post(vector, codec, algorithm)


def sequential(rank: SimRank, layer_times: Sequence[LayerTimes], exchange: Program) -> Program:
    """An iteration without overlap: compute, exchange all gradients, update (`smartnic.sequential`)."""
    yield rank.compute(sum(work.forward_s + work.backward_s for work in layer_times))
    yield from exchange
    yield rank.compute(sum(work.update_s for work in layer_times))


def overlapped(
    rank: SimRank, layer_times: Sequence[LayerTimes], gradients: Sequence[Floats], codec: str = ""
) -> Program:
    """An iteration as in Fig. 3b of Ma et al. (`smartnic.overlapped`): a layer's all-reduce is posted to the NIC when
    its gradients are there and the one before is done; behind it, that one's layer is updated and the next one
    computed."""
    yield rank.compute(sum(work.forward_s for work in layer_times))
    yield rank.compute(layer_times[-1].backward_s)
    above = None
    for index in range(len(layer_times) - 1, -1, -1):
        pending = rank.post(gradients[index], codec)
        if above is not None:
            yield rank.compute(layer_times[above].update_s)
        if index:
            yield rank.compute(layer_times[index - 1].backward_s)
        yield pending
        above = index
    yield rank.compute(layer_times[0].update_s)
