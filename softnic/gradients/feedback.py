"""Error feedback around any codec: what compression leaves out of a step goes into the next one.

After Seide et al. (Interspeech 2014) and Karimireddy et al. (ICML 2019); both ways of the exchange, as in Dist-EF-SGD
(Zheng, Huang, Kwok, NeurIPS 2019), with a simplification: what the owner of a block drops of the sum, it keeps as if it
were its own gradient. So there is one residual a parameter, whatever blocks a bucket was cut into, and nothing is ever
lost: gradients in = N x means out + residuals left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softnic.comm.buffers import IN_PLACE
from softnic.comm.communicator import Communicator
from softnic.gradients.bounds import rounding, sum_of_squares
from softnic.gradients.compressed import Encoder
from softnic.gradients.flat import Flat, collective, cut, forget_infinite
from softnic.gradients.method import Floats, Gradients, Method

_BLOCK = 16
"""Elements that codecs round together at most: blocks of the exchange are multiples of them."""


class Feedback(Method):
    """Compression by any codec, with error feedback.

    On every rank, by parameter, with residual e (zeros at first):

    1. p = g + e
    2. c = decode(encode(p));  e = p - c
    3. s = the sum of all ranks' c, for this rank's block: each has crossed the network once, and a codec leaves alone
       what it has made.
    4. r = decode(encode(s));  e += s - r in this block
    5. All ranks gather all r; the mean is r / N.

    With automatic bounds p is measured by g alone: a residual that has grown must not raise its own bound, or it would
    never be sent.

    Not worth it where the codec's error is far below the gradients' noise anyway (bounded:15, bfp:15), as it takes
    another array as long as the parameters and two passes over it; nor with optimizers that look at each gradient's
    size (Adam), if the codec drops most of them: what is late comes as one large gradient.
    """

    name = "feedback"

    def __init__(self, codec: str = "bounded:10") -> None:
        """`codec`: a codec, or `relative:3` for automatic bounds."""
        super().__init__()
        self._rounding = rounding(codec)
        self._flat = Flat()
        self._encoder = Encoder()

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        codec = self._rounding.codec
        scales = [np.float32(scale) for scale in self._rounding.scales(comm, gradients)]
        flat = self._flat.room(gradients, multiple=_BLOCK * comm.size)
        with np.errstate(over="ignore", invalid="ignore"):
            self._add_residuals(gradients, scales, flat)
            sent = self._encoder.round(codec, flat)
            self._keep_what_was_dropped(gradients, scales, flat)
            block = flat.size // comm.size
            own = slice(comm.rank * block, (comm.rank + 1) * block)
            collective(comm, "Reduce_scatter_block_comp", IN_PLACE, flat, codec=codec, algorithm="direct")
            total = flat[:block].copy()
            flat[own] = total
            self._encoder.round(codec, flat[own])
            total -= flat[own]
            self._keep_of_the_sum(gradients, scales, total, own)
        collective(comm, "Allgather_comp", IN_PLACE, flat, codec=codec)
        for scale, (_, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            np.multiply(part, np.float32(1 / comm.size) / scale, out=gradient)
        self._step(gradients)
        self.stats.count(gradients, sent, residual=self.residual_norm(gradients))

    def residual_norm(self, gradients: Gradients) -> float:
        """The l2-norm of what is kept of these parameters."""
        kept = (self.kept("residual", name, gradient.size) for name, gradient in gradients.items())
        return float(np.sqrt(sum(map(sum_of_squares, kept))))

    def _add_residuals(self, gradients: Gradients, scales: Sequence[np.float32], flat: Floats) -> None:
        """Steps 1; the residuals hold p afterwards, as well as `flat`."""
        for scale, (name, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            residual = self.kept("residual", name, gradient.size)
            residual += gradient
            np.multiply(residual, scale, out=part)

    def _keep_what_was_dropped(self, gradients: Gradients, scales: Sequence[np.float32], flat: Floats) -> None:
        """Step 2, of `flat` being c."""
        for scale, (name, gradient, part) in zip(scales, cut(flat, gradients), strict=True):
            residual = self.kept("residual", name, gradient.size)
            residual -= part if scale == 1 else part / scale
            forget_infinite(residual)

    def _keep_of_the_sum(self, gradients: Gradients, scales: Sequence[np.float32], dropped: Floats, own: slice) -> None:
        """Step 4: `dropped` is what was dropped of the sum of the block at `own`."""
        start = 0
        for scale, (name, gradient) in zip(scales, gradients.items(), strict=True):
            first, last = max(start, own.start), min(start + gradient.size, own.stop)
            if first < last:
                residual = self.kept("residual", name, gradient.size)[first - start : last - start]
                residual += dropped[first - own.start : last - own.start] / scale
                forget_infinite(residual)
            start += gradient.size
