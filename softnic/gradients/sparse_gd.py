"""Sparse gradient descent: only the largest gradients are sent, the others wait until they are large.

Strom (Interspeech 2015) sends what exceeds a fixed threshold; Aji and Heafield (EMNLP 2017) the largest share, which is
what LGC compares itself with under this name.
"""

from __future__ import annotations

from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats
from softnic.gradients.sparse import Sparsifier, check_density


class SparseGD(Sparsifier):
    """The largest share of each parameter's gradients, with a residual r (zeros at first).

    1. r = r + g
    2. Choose the share `density` of r that is largest by magnitude, in each parameter.
    3. Exchange places and values; the mean is their sum over all ranks, divided by N.
    4. r = 0 where it was sent.

    Not worth it with momentum in the optimizer and a small share: momentum is then applied to bursts of old gradients,
    which is what DGC corrects. Nor with many ranks: each one's choice differs, and a message a rank comes in.
    """

    name = "sparse-gd"

    def __init__(self, density: float = 0.01, floor: int = 0) -> None:
        """`density`: the share that is sent, 0..1. `floor`: parameters of up to so many elements are sent whole."""
        super().__init__(floor)
        self._density = check_density(density)

    def density(self, _name: str) -> float:
        return self._density

    def accumulate(self, name: str, gradient: Floats) -> Floats:
        residual = self.kept("residual", name, gradient.size)
        residual += gradient
        return residual

    def sent(self, name: str, indices: Indices) -> None:
        self.clear(self._kept["residual"][name], indices)
