"""What gradients are rounded to before they cross the network: a codec as it is, or with bounds that follow them.

A codec like `bounded:10` has an absolute bound, and gradients shrink as training goes on, each layer's at its own
pace. Automatic bounds, `relative:B`, are 2^-B of each parameter's root mean square. Every rank must round to the same
grid, or what crossed one link would change on the next one and ranks would end with different bits; so the ranks agree
on the mean square. The bound is made by scaling: multiplied by a power of two, which loses nothing, gradients of any
size meet the one grid of `bounded:15`.

    B = 3    most words become 8 bits       B = -2   most words are silent: only for error feedback

To agree before the exchange takes an exchange of its own, of a number a parameter (`scales`). Where nothing is lost by
a bound that comes a step late, the number travels with the gradients instead, and is for the next step (`measured` and
`following`). It is of the gradients alone: were residuals in it, they would raise the bound that makes them.
"""

from __future__ import annotations

import math

import numpy as np

from softnic import codecs
from softnic.comm.buffers import IN_PLACE
from softnic.comm.communicator import Communicator
from softnic.gradients.method import Floats, Gradients, MethodError

_GRID = 15
_MOST_BITS = 20
_MOST_EXPONENT = 126
"""Of a scale, so that its inverse too is a normal float32."""
_TRUSTED = (1e-30, 1e30)
"""Where a sum of squares has not left float32's range on its way."""
_UNIT = 2.0**60
"""A mean square that is as large as it was travels as this: a float beyond the grid, which codecs leave as it is, with
room for what is 2^29 times as small or 2^25 times as large."""
_LEAST, _MOST = 2.0**2, 2.0**110


class FixedBound:
    """A codec as it is."""

    def __init__(self, codec: codecs.Codec) -> None:
        self.codec = codec

    def scales(self, _comm: Communicator, gradients: Gradients) -> list[float]:
        return [1.0] * len(gradients)


class RelativeBound:
    """Automatic bounds: the error of a float is at most 2^-bits of its parameter's root mean square over all ranks, and
    at least a quarter of that is allowed, as bounds are powers of two.

    Scales are what gradients are multiplied by: powers of two, the same at all ranks."""

    codec = codecs.get(f"bounded:{_GRID}")

    def __init__(self, bits: int = 3) -> None:
        if not -_MOST_BITS <= bits <= _MOST_BITS:
            raise MethodError(f"relative takes bits from {-_MOST_BITS} to {_MOST_BITS}, not {bits}")
        self.bits = bits

    def scales(self, comm: Communicator, gradients: Gradients) -> list[float]:
        """By parameter, for these gradients: agreed by an all-reduce."""
        squares = np.array([sum_of_squares(gradient) for gradient in gradients.values()], np.float64)
        comm.Allreduce(IN_PLACE, squares)
        counts = [comm.size * gradient.size for gradient in gradients.values()]
        return [self._scale(square / max(count, 1)) for square, count in zip(squares, counts, strict=True)]

    def measured(self, scale: float, gradient: Floats) -> float:
        """What this rank adds to the sum that `following` takes: 0 for what cannot be measured, which is nothing but
        zeros or not finite."""
        mean_square = sum_of_squares(gradient) / max(gradient.size, 1)
        if not math.isfinite(mean_square) or not mean_square:
            return 0.0
        return max(_LEAST, min(_MOST, mean_square * self._unit(scale)))

    def following(self, scale: float, total: float, ranks: int) -> float:
        """The scale after this one: `total` is the sum of what all ranks measured, as all ranks have it."""
        return self._scale(total / ranks / self._unit(scale)) if 0 < total < math.inf else scale

    def _unit(self, scale: float) -> float:
        """What one of a mean square travels as: _UNIT for that of gradients which have this scale."""
        return _UNIT * math.ldexp(scale, _GRID - self.bits) ** 2

    def _scale(self, mean_square: float) -> float:
        """1 where there is nothing to measure: all zeros, or what is not finite, which codecs pass on as it is."""
        if not math.isfinite(mean_square) or not mean_square:
            return 1.0
        exponent = math.frexp(math.sqrt(mean_square))[1] - 1  # of the root mean square: 2^exponent or more
        return math.ldexp(1.0, max(-_MOST_EXPONENT, min(_MOST_EXPONENT, self.bits - exponent - _GRID)))


Rounding = FixedBound | RelativeBound


def rounding(text: str) -> Rounding:
    """Of `bounded:10` or any codec, or of `relative:3`. Raises MethodError and CodecError."""
    name, _, bits = text.partition(":")
    if name != "relative":
        return FixedBound(codecs.get(text))
    try:
        number = int(bits) if bits else 3
    except ValueError:
        raise MethodError(f"{text!r}: an integer is expected, as in relative:3") from None
    return RelativeBound(number)


def sum_of_squares(array: Floats) -> float:
    """In float32 where that is right; infinite or NaN where the array is."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        found = float(np.dot(array, array))
        if not _TRUSTED[0] < found < _TRUSTED[1]:
            found = float(np.sum(np.square(array, dtype=np.float64)))
    return found
