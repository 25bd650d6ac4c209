"""What becomes of gradients in an exchange, without a network: sums of ring and aggregator, rounded as links do.

A tagged float arrives as decode(encode(x)), so a sum over compressing NICs can be computed anywhere, bit for bit. Tests
hold these against real ranks. One process can so train what many would, with many codecs, in the time of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from softnic.codecs import Codec
from softnic.collectives.schedule import blocks
from softnic.experiments.data import Floats


class Exchange(Protocol):
    """Sums one array a worker into `out`, as an exchange of this kind would leave it on every worker."""

    def __call__(self, given: Sequence[Floats], out: Floats) -> None: ...


class Exact:
    """The sum alone."""

    def __call__(self, given: Sequence[Floats], out: Floats) -> None:
        out[:] = given[0]
        for gradients in given[1:]:
            out += gradients


class Ring:
    """Algorithm 1 of Li et al.: block b starts at worker b, is rounded by every link and added to at every hop; its
    last worker rounds it as well, so that all have the same bits."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __call__(self, given: Sequence[Floats], out: Floats) -> None:
        for block, part in enumerate(blocks("allreduce", "ring", out.size, len(given))):
            travelling = self._codec.roundtrip(given[block][part])
            for hop in range(1, len(given)):
                travelling += given[(block + hop) % len(given)][part]
                self._codec.roundtrip(travelling, out=travelling)
            out[part] = travelling

    def ratio(self, given: Sequence[Floats]) -> float:
        """Bytes of all that crosses links, to the bytes that do so compressed."""
        size, before, after = len(given), 0, 0
        for block, part in enumerate(blocks("allreduce", "ring", given[0].size, size)):
            travelling = np.array(given[block][part])
            for hop in range(1, size):
                after += len(self._codec.encode(travelling))
                travelling = self._codec.roundtrip(travelling) + given[(block + hop) % size][part]
            after += (size - 1) * len(self._codec.encode(travelling))
            before += 2 * (size - 1) * travelling.nbytes
        return before / after


class Aggregator:
    """Worker-aggregator with compressed gradients (WA+C): each worker's gradients cross one link; what comes back are
    weights, which travel as they are."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __call__(self, given: Sequence[Floats], out: Floats) -> None:
        Exact()([self._codec.roundtrip(gradients) for gradients in given], out)
