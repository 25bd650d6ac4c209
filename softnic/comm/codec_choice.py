"""codec = "either:SPARSE,DENSE": the codec of a reduction by what its data is, the same one on all ranks.

The ranks add up which of some words, at the same places in all buffers, are not zero. So all of them know what share of
the contributions is zero, and of the sum, where no two contributions cancel. If at most one word in eight of both
together is not zero, SPARSE is used, else DENSE: up to there `bounded` is shorter than four bits a word even if all
its vectors have 16 bits, and it leaves zeros as they are. The result has the bits of a call that names this codec.

The question takes a round trip, so buffers shorter than ASKED_BYTES, which gain little, have DENSE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs import Codec
from softnic.collectives.elements import BFLOAT16, carried
from softnic.comm import buffers, collective_args, execution
from softnic.comm.buffers import Array
from softnic.comm.connections import CommConnections
from softnic.comm.operators import SUM

NAME = "either"
DEFAULT = "bounded:10,rht:4"
ASKED_BYTES = 1 << 20
"""From here on the question costs less than the wrong codec would, at 100 Mbit/s (docs/codecs.md)."""
_BURST, _BURSTS = 8, 256
"""Words that `bounded` codes together, and how many of these are looked at."""
_GOLDEN = 0x9E3779B1
"""Of 2^32: multiples of it fall evenly, and in step with no layout of tensors."""


@dataclass(frozen=True)
class EitherCodec:
    """Two codecs, of which every reduction takes one."""

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
        counts, size = nonzero(array), len(connections.progress.peers) + 1
        place = (size, connections.progress.rank)
        execution.run(connections, call, collective_args.allreduce(*place, buffers.IN_PLACE, counts, SUM))
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
    return EitherCodec(*map(buffers.codec_of, named))


def nonzero(array: Array) -> npt.NDArray[np.uint16]:
    """Return 1 for each word looked at that is not zero, else 0. All arrays of a length are looked at alike."""
    bursts = array[: array.size // _BURST * _BURST].reshape(-1, _BURST)
    places = np.arange(_BURSTS, dtype=np.uint64) * np.uint64(_GOLDEN) % np.uint64(1 << 32)
    looked_at = bursts[(places * np.uint64(len(bursts)) >> np.uint64(32)).astype(np.intp)].ravel()
    if looked_at.dtype == BFLOAT16:  # zero but for the sign
        looked_at = looked_at.view(np.uint16) << 1
    return np.not_equal(looked_at, 0).astype(np.uint16)


def mostly_zeros(counts: npt.NDArray[np.uint16], size: int) -> bool:
    """Whether of `size` contributions and their sum together at most an eighth is not zero.

    Parameters
    ----------
    counts
        By word, how many ranks have something else than zero.
    size
        The number of ranks.
    """
    contributed, summed = int(counts.sum(dtype=np.int64)) / size, int(np.count_nonzero(counts))
    return contributed + summed <= 2 * counts.size / 8
