"""codec = "either:SPARSE,DENSE": the codec of a reduction by what its data is, the same one on all ranks.

Each rank notes which words of a sample, the same places in all buffers, are not zero, and the ranks add these notes up.
The total says what share of the contributions is zero, and of the sum, unless contributions cancel. If at most one word
in eight of both together is not zero, SPARSE is used, else DENSE: up to there `bounded` is shorter than four bits a
word even if all its vectors have 16 bits, and it leaves zeros as they are. The result has the bits of a call that names
this codec.

Adding up takes a round trip, so buffers shorter than ASKED_BYTES, which gain little, use DENSE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs import Codec
from softnic.collectives.elements import BFLOAT16, Array, carried
from softnic.comm.connections import CommConnections
from softnic.mpi.arguments import buffers, checks, collective_args
from softnic.mpi.collectives import execution
from softnic.mpi.operators import SUM

NAME = "either"
DEFAULT = "bounded:10,rht:4"
ASKED_BYTES = 1 << 20
"""From this size on, asking all ranks costs less than the wrong codec, at 100 Mbit/s (docs/codecs.md)."""
_BURST, _BURSTS = 8, 256
"""Words that `bounded` encodes together, and how many such groups are sampled."""
_GOLDEN = 0x9E3779B1
"""2^32 divided by the golden ratio: multiples modulo 2^32 are spread evenly, unlike the rows of any tensor."""


@dataclass(frozen=True)
class EitherCodec:
    """Two codecs, one of which is chosen for each reduction."""

    sparse: Codec
    """For data of mostly zeros."""
    dense: Codec

    def __str__(self) -> str:
        return f"{NAME}:{self.sparse},{self.dense}"

    def decides(self, array: Array) -> bool:
        """Whether the ranks have to agree: both codecs apply to the elements, and the buffer is not short."""
        codecs = (carried(array.dtype, codec)[1] for codec in (self.sparse, self.dense))
        return array.nbytes >= ASKED_BYTES and None not in codecs

    def agree(self, connections: CommConnections, call: str, array: Array) -> Codec:
        """Return the codec for a buffer, after asking all ranks. Every rank calls this."""
        size = len(connections.progress.peers) + 1
        place = (size, connections.progress.rank)

        def total(counts: Array) -> None:
            execution.run(connections, call, collective_args.allreduce(*place, buffers.IN_PLACE, counts, SUM))

        return self.choose(array, size, total)

    def choose(self, array: Array, size: int, total: Callable[[Array], object]) -> Codec:
        """Return the codec for a buffer. `total` adds up an array over the `size` ranks, in place."""
        counts = nonzero(array)
        total(counts)
        return self.sparse if mostly_zeros(counts, size) else self.dense


def either_of(codec: Any) -> EitherCodec | None:
    """Return the two codecs of `either:SPARSE,DENSE`, or None for another codec. Raises ValueError."""
    if isinstance(codec, EitherCodec):
        return codec
    name, colon, both = codec.partition(":") if isinstance(codec, str) else ("", "", "")
    if name != NAME:
        return None
    named = (both if colon else DEFAULT).split(",")
    if len(named) != 2:
        raise ValueError(f"codec is {codec!r}: two codecs are expected, as in '{NAME}:{DEFAULT}'")
    return EitherCodec(*map(checks.codec_of, named))


def nonzero(array: Array) -> npt.NDArray[np.uint16]:
    """Return, for a sample of words, 1 where a word is not zero. Arrays of one length have the same sample."""
    bursts = array[: array.size // _BURST * _BURST].reshape(-1, _BURST)
    places = np.arange(_BURSTS, dtype=np.uint64) * np.uint64(_GOLDEN) % np.uint64(1 << 32)
    looked_at = bursts[(places * np.uint64(len(bursts)) >> np.uint64(32)).astype(np.intp)].ravel()
    if looked_at.dtype == BFLOAT16:  # zero but for the sign
        looked_at = looked_at.view(np.uint16) << 1
    return np.not_equal(looked_at, 0).astype(np.uint16)


def mostly_zeros(counts: npt.NDArray[np.uint16], size: int) -> bool:
    """Return whether at most an eighth of the contributions and the sum, taken together, is not zero.

    Parameters
    ----------
    counts
        For each word of the sample, the number of ranks where it is not zero.
    size
        The number of ranks.
    """
    contributed, summed = int(counts.sum(dtype=np.int64)) / size, int(np.count_nonzero(counts))
    return contributed + summed <= 2 * counts.size / 8
