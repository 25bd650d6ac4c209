"""Error feedback around any codec: the error of a step's compression is added to the next step's gradients.

After Seide et al. (Interspeech 2014) and Karimireddy et al. (ICML 2019). With `bounded`, and so with automatic bounds,
ranks round to multiples of one step, and sums are multiples of it too: a compressed exchange of them is exact. Other
codecs round sums as well: then both directions have error feedback, as in Dist-EF-SGD (Zheng, Huang, Kwok, NeurIPS
2019), with a simplification: the owner of a block keeps the error of the sum in its own residual. So there is one
residual for each parameter, however buckets are cut into blocks, and nothing is lost: gradients in = N x means out +
residuals left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softnic.codecs import feedback
from softnic.gradients.bounds import RelativeBound, rounding, sum_of_squares
from softnic.gradients.compressed import Encoder
from softnic.gradients.flat import Flat, cut, zero_nonfinite
from softnic.gradients.method import Floats, Gradients, MethodError
from softnic.gradients.rounds import MessageMethod, Rounds, RoundsPlace, feedback_rounds
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator


class Feedback(MessageMethod):
    """Compression by any codec, with error feedback.

    On every rank, by parameter, with residual e (zeros at first):

    1. p = g + e
    2. c = decode(encode(p));  e = p - c
    3. With `bounded`: all-reduce the sum s of all ranks' c, which is exact; the mean is s / N. Otherwise:
    4. s = the sum of all ranks' c, for this rank's block. Each c crosses the network once, unchanged, as a codec does
       not alter its own results.
    5. r = decode(encode(s));  e += s - r in this block
    6. All ranks gather all r; the mean is r / N.

    Automatic bounds are computed from the previous step's gradients g alone: a residual that has grown must not raise
    its own bound, or it would never be sent. The figures on which ranks agree travel with the gradients, before the
    first step in an exchange of their own.

    Not worthwhile where the codec's error is far below the gradients' noise (bounded:15, bfp:15), as it takes an array
    of the parameters' size and a pass over it; nor with optimizers that use each gradient's magnitude (Adam), if the
    codec drops most gradients: delayed ones arrive as one large gradient.
    """

    name = "feedback"
    keeps = "residual"

    def __init__(self, codec: str = "bounded:10") -> None:
        """`codec`: a codec, or `relative:3` for automatic bounds."""
        super().__init__()
        rounds = rounding(codec)
        self._codec = rounds.codec
        self._bounds = rounds if isinstance(rounds, RelativeBound) else None
        self._flat = Flat()
        self._encoder = Encoder()

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            sent = (self._sum_exactly if feedback.supported(self._codec) else self._sum_by_blocks)(comm, gradients)
        self._step(gradients)
        self.stats.count(gradients, sent, residual=self.residual_norm(gradients))

    def rounds(self, gradient: Floats, kept: Floats, place: RoundsPlace) -> Rounds:
        """Return the rounds of a gradient, around any codec by steps 1, 2 and 4 to 6. Raises MethodError for automatic
        bounds, on which ranks agree by further calls."""
        if self._bounds is not None:
            raise MethodError("feedback around automatic bounds has no rounds of messages: name a codec, as in rht:4")
        return feedback_rounds(self._codec, gradient, kept, place)

    def residual_norm(self, gradients: Gradients) -> float:
        """Return the l2-norm of the residuals of these parameters."""
        return float(np.sqrt(sum(map(sum_of_squares, self._residuals(gradients)))))

    def _residuals(self, gradients: Gradients) -> list[Floats]:
        return [self.kept(self.keeps, name, gradient.size) for name, gradient in gradients.items()]

    # With `bounded`

    def _sum_exactly(self, comm: Communicator, gradients: Gradients) -> int:
        """Steps 1 to 3. The figures for automatic bounds follow the gradients."""
        scales = self._scales(comm, gradients)
        measured = self._measure(gradients, scales)
        flat = self._flat.get(gradients, more=len(measured))
        parts = list(cut(flat, gradients))
        sent = sum(
            feedback.quantize(self._codec, scale, gradient, residual, part)
            for scale, residual, (_, gradient, part) in zip(scales, self._residuals(gradients), parts, strict=True)
        )
        flat[flat.size - len(measured) :] = measured
        comm.Allreduce_comp(IN_PLACE, flat, codec=self._codec)
        for scale, (_, gradient, part) in zip(scales, parts, strict=True):
            np.multiply(part, np.float32(1 / comm.size / scale), out=gradient)
        self._update_scales(gradients, flat[flat.size - len(measured) :], comm.size)
        return sent + 4 * len(measured)

    def _scales(self, comm: Communicator, gradients: Gradients) -> list[float]:
        """Return the factors for the gradients in this step."""
        if self._bounds is None:
            return [1.0] * len(gradients)
        new = {name: gradient for name, gradient in gradients.items() if not self._scale(name)[0]}
        if new:
            for name, scale in zip(new, self._bounds.scales(comm, new), strict=True):
                self._scale(name)[0] = scale
        return [float(self._scale(name)[0]) for name in gradients]

    def _measure(self, gradients: Gradients, scales: Sequence[float]) -> list[float]:
        if self._bounds is None:
            return []
        return [self._bounds.measured(*each) for each in zip(scales, gradients.values(), strict=True)]

    def _update_scales(self, gradients: Gradients, totals: Floats, ranks: int) -> None:
        """Set the scales of the next step from the sums of all ranks' figures."""
        if self._bounds is not None:
            for name, total in zip(gradients, totals.tolist(), strict=True):
                scale = self._scale(name)
                scale[0] = self._bounds.following(float(scale[0]), total, ranks)

    def _scale(self, name: str) -> Floats:
        """Return the kept factor of a parameter's gradients, an array of one element; 0 before its first step."""
        return self.kept("scale", name, 1)

    # With other codecs

    def _sum_by_blocks(self, comm: Communicator, gradients: Gradients) -> int:
        """Steps 1, 2 and 4 to 6."""
        codec = self._codec
        flat = self._flat.get(gradients, multiple=codec.block_bytes // 4 * comm.size)
        sent = feedback.round_parts(codec, list(gradients.values()), self._residuals(gradients), flat)
        block = flat.size // comm.size
        own = slice(comm.rank * block, (comm.rank + 1) * block)
        comm.Reduce_scatter_block_comp(IN_PLACE, flat, codec=codec, algorithm="direct")
        dropped = flat[:block].copy()
        flat[own] = dropped
        self._encoder.round(codec, flat[own])
        dropped -= flat[own]
        self._keep_dropped(gradients, dropped, own)
        comm.Allgather_comp(IN_PLACE, flat, codec=codec)
        for _, gradient, part in cut(flat, gradients):
            np.multiply(part, np.float32(1 / comm.size), out=gradient)
        return sent

    def _keep_dropped(self, gradients: Gradients, dropped: Floats, own: slice) -> None:
        """Step 5. `dropped` is the error of the sum of the block at `own`."""
        start = 0
        for residual in self._residuals(gradients):
            first, last = max(start, own.start), min(start + residual.size, own.stop)
            if first < last:
                part = residual[first - start : last - start]
                part += dropped[first - own.start : last - own.start]
                zero_nonfinite(part)
            start += residual.size
