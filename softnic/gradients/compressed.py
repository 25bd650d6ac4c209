"""The mean of what a codec leaves of the gradients, and nothing kept: what the codec drops is lost."""

from __future__ import annotations

import numpy as np

from softnic.codecs import Codec
from softnic.comm.buffers import IN_PLACE, algorithm_of
from softnic.comm.communicator import Communicator
from softnic.gradients.bounds import rounding
from softnic.gradients.flat import Flat, collective, cut
from softnic.gradients.method import Floats, Gradients, Method


class Encoder:
    """Rounds arrays as NICs will, and says how many bytes cross for them."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def round(self, codec: Codec, array: Floats) -> int:
        """Replaces the array by decode(encode(array)); returns the bytes of the encoding."""
        most = codec.bound(array.size)
        if self._bytes.size < most:
            self._bytes = np.empty(most, np.uint8)
        used = codec.encode_into(array, self._bytes)
        codec.decode_into(self._bytes[:used], array)
        return used


class Compressed(Method):
    """All-reduce in which NICs compress, by a codec or with automatic bounds (bounds.py).

    1. Multiply by the scales that all ranks agree on (automatic bounds; else 1).
    2. All-reduce the sum, compressed.
    3. Divide by scale and N. Dividing before the sum would lose more, where the bound is absolute.

    Not worth it where the bound is not well below the gradients: what is dropped is lost, in every step the same small
    gradients (feedback.py keeps them). Nor where the network is faster than the codec.
    """

    name = "compressed"

    def __init__(self, codec: str = "bounded:10", algorithm: str | None = None) -> None:
        """`codec`: a codec, or `relative:3`. `algorithm`: of Allreduce_comp. Raises ValueError."""
        super().__init__()
        self._rounding = rounding(codec)
        self._algorithm = algorithm_of(algorithm)
        self._flat = Flat()
        self._encoder = Encoder()

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        codec = self._rounding.codec
        scales = self._rounding.scales(comm, gradients)
        flat = self._flat.room(gradients)
        for scale, (_, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            np.multiply(gradient, np.float32(scale), out=part)
        sent = self._encoder.round(codec, flat)
        collective(comm, "Allreduce_comp", IN_PLACE, flat, codec=codec, algorithm=self._algorithm)
        for scale, (_, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            np.multiply(part, np.float32(1 / (scale * comm.size)), out=gradient)
        self._step(gradients)
        self.stats.count(gradients, sent)
