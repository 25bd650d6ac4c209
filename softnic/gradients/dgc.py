"""Deep Gradient Compression: sparse gradients with corrected momentum.

Lin, Han, Mao, Wang, Dally (ICLR 2018), sections 3.1 to 3.3, with two differences: the largest gradients are selected
exactly, where the paper uses the threshold of a sample; and clipping uses the norm of all gradients, so it needs them
in one call.
"""

from __future__ import annotations

import math

import numpy as np

from softnic.gradients.bounds import sum_of_squares
from softnic.gradients.flat import cut, zero_nonfinite
from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats, Gradients, MethodError
from softnic.gradients.sparse import Sparsifier, check_density
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator

_STAGES = 4
_STAGE_DENSITY = 0.25


class DGC(Sparsifier):
    """By parameter, with momentum u and accumulated velocity v (zeros at first). The optimizer is SGD *without*
    momentum, which DGC applies itself.

    1. Clipping (if requested): scale g so that the norm of all gradients is at most clip / sqrt(N).
    2. Momentum correction: u = m u + g;  v = v + u    (Nesterov: u = m (u + g);  v = v + u + g)
    3. Select the fraction of v with the largest magnitudes: `density`, but in the first quarter of warm-up 25 %, in the
       next ones 6.25 %, 1.56 %, 0.39 %, while that is more.
    4. Exchange indices and values; the mean is their sum over all ranks, divided by N.
    5. Factor masking: v = 0 and u = 0 where v was sent, so that momentum does not repeat what was applied.

    Parameters of up to `floor` elements are sent whole, and their momentum is not cleared. So are all parameters in the
    first `full` steps, by all-reduce: LGC's warm-up (Abrahamyan et al., 2021, Fig. 13).

    Not worthwhile for few steps (warm-up sends much), for optimizers other than SGD, where the network is fast enough
    for a codec (bounded, relative), or with many ranks: their selections differ, and each receives all messages.
    """

    name = "dgc"

    def __init__(
        self,
        density: float = 0.001,
        momentum: float = 0.9,
        warmup: int = 0,
        clip: float = 0.0,
        nesterov: bool = False,
        floor: int = 0,
        full: int = 0,
    ) -> None:
        """`warmup`: number of steps after `full`. `clip`: limit for the norm of the mean gradient; 0: no clipping.
        `floor`: 0 as in the paper; its authors' program sends biases whole. `full`: number of first steps that send
        everything; 0 as in the paper."""
        super().__init__(floor)
        if not 0 <= momentum < 1 or min(warmup, clip, full) < 0:
            raise MethodError(f"dgc takes a momentum of 0..1, not {momentum}; warmup, clip and full are 0 or more")
        self._density = check_density(density)
        self.momentum = momentum
        self._momentum = np.float32(momentum)
        self._warmup = warmup
        self._full = full
        self._clip = clip
        self._nesterov = bool(nesterov)
        self.whole = clip > 0

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        if self._clip:
            self._clip_together(comm, gradients)
        if gradients and all(self.steps(name) < self._full for name in gradients):
            self._average_whole(comm, gradients)
        else:
            super().average(comm, gradients)

    def _average_whole(self, comm: Communicator, gradients: Gradients) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            own = np.concatenate([self._with_momentum(name, gradient) for name, gradient in gradients.items()])
            own *= np.float32(1 / comm.size)
            comm.Allreduce(IN_PLACE, own)
        for name, gradient, part in cut(own, gradients):
            gradient[:] = part
            zero_nonfinite(self.kept("momentum", name, gradient.size))
        self._step(gradients)
        self.stats.count(gradients, own.nbytes, kept_share=1.0)

    def _clip_together(self, comm: Communicator, gradients: Gradients) -> None:
        norm = math.sqrt(sum(map(sum_of_squares, gradients.values())))
        limit = self._clip / math.sqrt(comm.size)
        if limit < norm < math.inf:
            for gradient in gradients.values():
                gradient *= np.float32(limit / norm)

    def density(self, name: str) -> float:
        step = self.steps(name) - self._full
        if step >= self._warmup:
            return self._density
        stage = max(step, 0) * _STAGES // self._warmup
        return max(self._density, _STAGE_DENSITY ** (stage + 1))

    def _with_momentum(self, name: str, gradient: Floats) -> Floats:
        """Return the step that momentum makes of the gradients."""
        momentum = self.kept("momentum", name, gradient.size)
        if self._nesterov:
            momentum += gradient
            momentum *= self._momentum
            return momentum + gradient
        momentum *= self._momentum
        momentum += gradient
        return momentum

    def accumulate(self, name: str, gradient: Floats) -> Floats:
        step = self._with_momentum(name, gradient)
        if gradient.size <= self.floor:
            return step
        velocity = self.kept("velocity", name, gradient.size)
        velocity += step
        return velocity

    def on_sent(self, name: str, indices: Indices) -> None:
        whole = name not in self._kept.get("velocity", {})
        self.clear(self._kept["momentum"][name], indices[:0] if whole else indices)
        if not whole:
            self.clear(self._kept["velocity"][name], indices)
