"""Error bounds of gradients: those of a codec, or automatic ones that follow the gradients' size.

A codec like `bounded:10` has an absolute bound, while gradients shrink during training, those of each layer at another
rate. Automatic bounds, `relative:B`, are 2^-B of each parameter's root mean square. All ranks must round to the same
grid: otherwise a value would be rounded again on the next link, and ranks would end with different bits. So the ranks
agree on the mean square. Bounds are set by scaling: multiplied by a power of two, which is exact, gradients of any size
fit the grid of `bounded:15`.

    B = 3    most words become 8 bits       B = -2   most words become zeros: only with error feedback

To agree before the exchange takes another exchange, of one number for each parameter (`scales`). With error feedback
the number travels with the gradients and determines the next step's bound (`measured` and `following`). It is computed
from gradients without residuals, which would otherwise raise their own bound.
"""

from __future__ import annotations

import math

import numpy as np

from softnic import codecs
from softnic.gradients.method import Floats, Gradients, MethodError
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator

_GRID = 15
_MOST_BITS = 20
_MOST_EXPONENT = 126
"""Limit for the exponent of a scale: its inverse is a normal float32, too."""
_TRUSTED = (1e-30, 1e30)
"""Range of sums of squares that are accurate in float32."""
_UNIT = 2.0**60
"""The number sent for an unchanged mean square: a float beyond the grid, which codecs do not alter. A mean square may
become 2^29 times as small or 2^25 times as large."""
_LEAST, _MOST = 2.0**2, 2.0**110


class FixedBound:
    """The bound of a codec."""

    def __init__(self, codec: codecs.Codec) -> None:
        self.codec = codec

    def scales(self, _comm: Communicator, gradients: Gradients) -> list[float]:
        """Return factors of 1."""
        return [1.0] * len(gradients)


class RelativeBound:
    """Automatic bounds: at most 2^-bits of a parameter's root mean square over all ranks, and at least a quarter of
    that, as bounds are powers of two.

    Scales are the factors of gradients: powers of two, the same on all ranks.
    """

    codec = codecs.get(f"bounded:{_GRID}")

    def __init__(self, bits: int = 3) -> None:
        if not -_MOST_BITS <= bits <= _MOST_BITS:
            raise MethodError(f"relative takes bits from {-_MOST_BITS} to {_MOST_BITS}, not {bits}")
        self.bits = bits

    def scales(self, comm: Communicator, gradients: Gradients) -> list[float]:
        """Return the factor of each parameter's gradients, on which the ranks agree by an all-reduce."""
        squares = np.array([sum_of_squares(gradient) for gradient in gradients.values()], np.float64)
        comm.Allreduce(IN_PLACE, squares)
        counts = [comm.size * gradient.size for gradient in gradients.values()]
        return [self._scale(square / max(count, 1)) for square, count in zip(squares, counts, strict=True)]

    def measured(self, scale: float, gradient: Floats) -> float:
        """Return this rank's term of the sum for `following`: 0 for gradients that are all zero or not finite."""
        mean_square = sum_of_squares(gradient) / max(gradient.size, 1)
        if not math.isfinite(mean_square) or not mean_square:
            return 0.0
        return max(_LEAST, min(_MOST, mean_square * self._unit(scale)))

    def following(self, scale: float, total: float, ranks: int) -> float:
        """Return the scale of the next step, given the sum of all ranks' `measured`."""
        return self._scale(total / ranks / self._unit(scale)) if 0 < total < math.inf else scale

    def _unit(self, scale: float) -> float:
        """Return the number sent for a mean square of 1, such that the mean square of this scale is sent as _UNIT."""
        return _UNIT * math.ldexp(scale, _GRID - self.bits) ** 2

    def _scale(self, mean_square: float) -> float:
        """Return the scale for a mean square: 1 if it is zero or not finite."""
        if not math.isfinite(mean_square) or not mean_square:
            return 1.0
        exponent = math.frexp(math.sqrt(mean_square))[1] - 1  # of the root mean square: 2^exponent or more
        return math.ldexp(1.0, max(-_MOST_EXPONENT, min(_MOST_EXPONENT, self.bits - exponent - _GRID)))


Rounding = FixedBound | RelativeBound


def rounding(text: str) -> Rounding:
    """Return the bound of a codec such as `bounded:10`, or of `relative:3`. Raises MethodError and CodecError."""
    name, _, bits = text.partition(":")
    if name == "either":
        raise MethodError("`either` chooses a codec for each call: the method `compressed` takes it, no other one does")
    if name != "relative":
        return FixedBound(codecs.get(text))
    try:
        number = int(bits) if bits else 3
    except ValueError:
        raise MethodError(f"{text!r}: an integer is expected, as in relative:3") from None
    return RelativeBound(number)


def sum_of_squares(array: Floats) -> float:
    """Return the sum of squares, in float32 where that is accurate; infinite or NaN if the array is not finite."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        found = float(np.dot(array, array))
        if not _TRUSTED[0] < found < _TRUSTED[1]:
            found = float(np.sum(np.square(array, dtype=np.float64)))
    return found
