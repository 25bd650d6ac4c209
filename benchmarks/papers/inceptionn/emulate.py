"""Sums of gradients as ring and aggregator leave them, rounded as links round them, computed without a network.

A tagged float arrives as decode(encode(x)), so a sum over compressing NICs can be computed anywhere, bit for bit; tests
compare these with real ranks. One process can thus train what many would, with many codecs, in the time of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from softnic.codecs import Codec
from softnic.collectives.schedule import blocks
from softnic.experiments.data import Floats

EmulatedExchange = Callable[[Sequence[Floats], Floats], None]
"""Sums one array per worker into the second argument, as an exchange of this kind leaves it on every worker."""


def exact_sum(gradients: Sequence[Floats], out: Floats) -> None:
    """Sum without rounding."""
    out[:] = gradients[0]
    for each in gradients[1:]:
        out += each


class EmulatedRing:
    """Algorithm 1 of Li et al.: block b starts at worker b, each link rounds it, each hop adds to it.

    Its last worker rounds it as well, so that all workers have the same bits.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __call__(self, gradients: Sequence[Floats], out: Floats) -> None:
        for block, part in enumerate(blocks("allreduce", "ring", out.size, len(gradients))):
            travelling = self._codec.roundtrip(gradients[block][part])
            for hop in range(1, len(gradients)):
                travelling += gradients[(block + hop) % len(gradients)][part]
                self._codec.roundtrip(travelling, out=travelling)
            out[part] = travelling

    def ratio(self, gradients: Sequence[Floats]) -> float:
        """Bytes that cross links without compression, divided by those with it."""
        size, before, after = len(gradients), 0, 0
        for block, part in enumerate(blocks("allreduce", "ring", gradients[0].size, size)):
            travelling = np.array(gradients[block][part])
            for hop in range(1, size):
                after += len(self._codec.encode(travelling))
                travelling = self._codec.roundtrip(travelling) + gradients[(block + hop) % size][part]
            after += (size - 1) * len(self._codec.encode(travelling))
            before += 2 * (size - 1) * travelling.nbytes
        return before / after


class EmulatedAggregator:
    """Worker-aggregator with compressed gradients (WA+C): gradients cross one link each, weights return exact."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __call__(self, gradients: Sequence[Floats], out: Floats) -> None:
        exact_sum([self._codec.roundtrip(each) for each in gradients], out)
