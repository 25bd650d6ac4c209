"""Hierarchies of INCEPTIONN's Fig. 1 as programs of a virtual-time cluster, with the hosts' sums.

Workers have the first ranks, in groups of neighbours. (a) has an aggregator for each group and one above these, (b)
rings in the groups and an aggregator above them. (c), rings in the groups and between them, is what NICs execute as
`hierarchical` (softnic/collectives/schedule).
"""

from __future__ import annotations

import numpy as np

from softnic.collectives.schedule import RecvBlock, SendBlock, blocks, plan
from softnic.model.programs import BLOCK_FLOATS
from softnic.sim.processes import Floats, Program, as_bytes
from softnic.sim.rank import SimRank


def aggregators(rank: SimRank, vector: Floats, workers: int, group: int, gamma: float, codec: str = "") -> Program:
    """Fig. 1a: gradients go up through two levels of aggregators, the sum, which stands for the weights, comes back.

    The groups' aggregators follow the workers, the last rank is the one above. With a codec, gradients are compressed
    on both levels, weights on none.
    """
    groups = workers // group
    root = workers + groups
    if rank.index < workers:
        above = workers + rank.index // group
        rank.send(above, as_bytes(vector), codec)
        yield rank.receive(above, as_bytes(vector))
        return
    below = range(workers, root)
    if rank.index < root:
        first = (rank.index - workers) * group
        below = range(first, first + group)
    yield from _sum_of(rank, vector, below, gamma)
    if rank.index < root:
        rank.send(root, as_bytes(vector), codec)
        received = np.empty_like(vector)
        yield rank.receive(root, as_bytes(received))
        vector[:] = received
    for peer in below:
        rank.send(peer, as_bytes(vector))


def _sum_of(rank: SimRank, vector: Floats, peers: range, gamma: float) -> Program:
    received = [np.empty_like(vector) for _ in peers]
    yield from [rank.receive(peer, as_bytes(each)) for peer, each in zip(peers, received, strict=True)]
    yield rank.compute((len(peers) - 1) * vector.nbytes * gamma)
    vector[:] = np.sum(received, axis=0, dtype=np.float32)


def rings_under_aggregator(
    rank: SimRank, vector: Floats, workers: int, group: int, gamma: float, codec: str = ""
) -> Program:
    """Fig. 1b: each group sums by a ring. Then each worker sends the block that it owns to the aggregator, the last
    rank, which adds those of all groups and returns the sum, and the rings distribute it. All legs are compressed.
    """
    parts = [_floats(vector, block) for block in blocks("allreduce", "ring", vector.size // BLOCK_FLOATS, group)]
    if rank.index == workers:
        yield from _add_groups(rank, parts, workers, group, gamma, codec)
        return
    first = rank.index // group * group
    received = np.empty(max(part.size for part in parts), np.float32)
    for step in plan("allreduce", "ring", rank.index - first, group):
        block = parts[step.block]
        if isinstance(step, SendBlock):
            rank.send(first + step.peer, as_bytes(block), codec)
            continue
        into = received[: block.size] if step.combine else block
        yield rank.receive(first + step.peer, as_bytes(into))
        if step.combine:
            yield rank.compute(block.nbytes * gamma)
            block += into
        if step.last:
            rank.send(workers, as_bytes(block), codec)
            yield rank.receive(workers, as_bytes(into))
            block[:] = into


def _add_groups(rank: SimRank, parts: list[Floats], workers: int, group: int, gamma: float, codec: str) -> Program:
    """Run the aggregator of Fig. 1b: each block is summed and returned when all groups have sent it."""
    received = {worker: np.empty_like(parts[owned(worker % group, group)]) for worker in range(workers)}
    waiting = [rank.receive(worker, as_bytes(each)) for worker, each in received.items()]
    for place in range(group):
        owners = range(place, workers, group)
        for owner in owners:
            yield waiting[owner]
        own = parts[owned(place, group)]
        yield rank.compute((len(owners) - 1) * own.nbytes * gamma)
        own[:] = np.sum([received[owner] for owner in owners], axis=0, dtype=np.float32)
        for owner in owners:
            rank.send(owner, as_bytes(own), codec)


def owned(place: int, group: int) -> int:
    """Return the block that a rank of a ring has summed when the first half of its steps is done."""
    return next(
        step.block
        for step in plan("allreduce", "ring", place, group)
        if isinstance(step, RecvBlock) and step.combine and step.last
    )


def _floats(vector: Floats, block: slice) -> Floats:
    return vector[block.start * BLOCK_FLOATS : block.stop * BLOCK_FLOATS]
