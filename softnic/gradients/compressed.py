"""The mean of compressed gradients, without error feedback: the error of the codec is lost."""

from __future__ import annotations

import numpy as np

from softnic.codecs import Codec
from softnic.gradients.bounds import FixedBound, rounding
from softnic.gradients.flat import Flat, cut
from softnic.gradients.method import Floats, Gradients, Method
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.arguments.checks import algorithm_of
from softnic.mpi.collectives.codec_choice import either_of
from softnic.mpi.communicator import Communicator


class Encoder:
    """Rounds arrays as NICs will, and counts the bytes of their encoding."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def round(self, codec: Codec, array: Floats) -> int:
        """Replace an array by decode(encode(array)). Returns the number of encoded bytes."""
        most = codec.bound(array.size)
        if self._bytes.size < most:
            self._bytes = np.empty(most, np.uint8)
        used = codec.encode_into(array, self._bytes)
        codec.decode_into(self._bytes[:used], array)
        return used


class Compressed(Method):
    """All-reduce in which NICs compress, by a codec or with automatic bounds (bounds.py).

    1. Multiply by scales on which all ranks agree (automatic bounds; otherwise 1).
    2. All-reduce the sum, compressed.
    3. Divide by scale and N. Dividing before the sum would lose more, as the bound is absolute.

    Not worthwhile where the bound is not well below the gradients: the same small gradients are lost in every step
    (feedback.py keeps them). Nor where the network is faster than the codec.
    """

    name = "compressed"

    def __init__(self, codec: str = "bounded:10", algorithm: str | None = None) -> None:
        """`codec`: a codec, `relative:3`, or `either`, which chooses one for each call (softnic/mpi: codec_choice.py).

        `algorithm`: of Allreduce_comp. Raises ValueError.
        """
        super().__init__()
        self._either = either_of(codec)
        self._rounding = rounding(codec) if self._either is None else FixedBound(self._either.dense)
        self._algorithm = algorithm_of(algorithm)
        self._flat = Flat()
        self._encoder = Encoder()

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        scales = self._rounding.scales(comm, gradients)
        flat = self._flat.get(gradients)
        for scale, (_, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            np.multiply(gradient, np.float32(scale), out=part)
        codec = self._rounding.codec
        if self._either is not None and self._either.decides(flat):
            codec = self._either.choose(flat, comm.size, lambda counts: comm.Allreduce(IN_PLACE, counts))
        sent = self._encoder.round(codec, flat)
        comm.Allreduce_comp(IN_PLACE, flat, codec=codec, algorithm=self._algorithm)
        for scale, (_, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            np.multiply(part, np.float32(1 / (scale * comm.size)), out=gradient)
        self._step(gradients)
        self.stats.count(gradients, sent)
