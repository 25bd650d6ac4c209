"""Schedules of collectives executed in one process, without a network: the bits of a real call."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from softnic.codecs import Codec
from softnic.collectives.operations import SUM, ArrayOp
from softnic.collectives.schedule import SendBlock, blocks, plan
from softnic.experiments.data import Floats
from softnic.experiments.report import MeasurementError


def execute(
    contributions: Sequence[Floats],
    algorithm: str,
    codec: Codec | None,
    op: ArrayOp = SUM,
    collective: str = "allreduce",
) -> list[Floats]:
    """Return each rank's result of a reduction. Raises MeasurementError if the ranks deadlock."""
    size = len(contributions)
    cuts = blocks(collective, algorithm, contributions[0].size, size)
    results = [floats.copy() for floats in contributions]
    schedules = [deque(plan(collective, algorithm, rank, size)) for rank in range(size)]
    wires: dict[tuple[int, int], deque[Floats]] = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(schedules):
            while steps and (isinstance(steps[0], SendBlock) or wires[steps[0].peer, rank]):
                step = steps.popleft()
                block = results[rank][cuts[step.block]]
                moved = True
                if isinstance(step, SendBlock):
                    wires[rank, step.peer].append(block.copy() if codec is None else codec.roundtrip(block))
                    continue
                come = wires[step.peer, rank].popleft()
                block[:] = op.arrays(come, block) if step.combine else come
                if step.last:
                    op.finish(block, size)
                    if codec is not None and collective != "reduce_scatter":
                        codec.roundtrip(block, out=block)
    if any(schedules):
        raise MeasurementError(f"{algorithm} with {size} ranks does not come to an end; this is a bug")
    return results
