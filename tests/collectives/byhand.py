"""What a collective comes to: all ranks' steps done one after the other, whole blocks at a time, with numpy alone."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.collectives import schedule
from softnic.collectives.operations import ArrayOp
from softnic.collectives.schedule import SendBlock

Array = npt.NDArray[Any]


def executed(
    collective: str,
    algorithm: str,
    sources: Sequence[Array],
    *,
    op: ArrayOp | None = None,
    root: int = -1,
    codec: str = "",
    blocks: Sequence[slice] | None = None,
) -> list[Array]:
    """What every rank holds at the end, all blocks of it, by the rules of softnic/collectives/schedule.

    What crosses the network is rounded by the codec; so is what a rank starts with as its own, or was the last to
    combine, but for the blocks of a reduce_scatter.
    """
    size = len(sources)
    held = [source.copy() for source in sources]
    cut = blocks or schedule.blocks(collective, algorithm, sources[0].size, size)
    steps = [deque(schedule.plan(collective, algorithm, rank, size, root)) for rank in range(size)]
    wires: defaultdict[tuple[int, int], deque[Array]] = defaultdict(deque)

    def rounded(array: Array) -> Array:
        return codecs.get(codec).roundtrip(array) if codec and size > 1 else array.copy()

    if collective == "bcast":
        held[root] = rounded(held[root])
    if collective == "allgather":
        for rank, block in enumerate(cut):
            held[rank][block] = rounded(held[rank][block])
    with np.errstate(all="ignore"):
        while any(steps):
            for rank, mine in enumerate(steps):
                while mine:
                    step = mine[0]
                    block = cut[step.block]
                    if isinstance(step, SendBlock):
                        wires[rank, step.peer].append(rounded(held[rank][block]))
                    elif not (wire := wires[step.peer, rank]):
                        break
                    elif not step.combine:
                        held[rank][block] = wire.popleft()
                    else:
                        assert op is not None
                        op.combine(wire.popleft(), held[rank][block], held[rank][block])
                        if step.last:
                            op.finish(held[rank][block], size)
                            if collective != "reduce_scatter":
                                held[rank][block] = rounded(held[rank][block])
                    mine.popleft()
    return held
