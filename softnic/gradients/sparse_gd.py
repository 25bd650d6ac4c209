"""Sparse gradient descent: only the largest gradients are sent, the others accumulate until they are large.

Strom (Interspeech 2015) sends gradients above a fixed threshold; Aji and Heafield (EMNLP 2017) send the largest
fraction, which is LGC's comparator of this name.
"""

from __future__ import annotations

from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats
from softnic.gradients.sparse import Sparsifier, check_density


class SparseGD(Sparsifier):
    """The largest fraction of each parameter's gradients, with a residual r (zeros at first).

    1. r = r + g
    2. Select the fraction `density` of r with the largest magnitudes, in each parameter.
    3. Exchange indices and values; the mean is their sum over all ranks, divided by N.
    4. r = 0 where it was sent.

    Not worthwhile with momentum in the optimizer and a small fraction: momentum is then applied to bursts of old
    gradients, which DGC corrects. Nor with many ranks: their selections differ, and each rank receives all messages.
    """

    name = "sparse-gd"

    def __init__(self, density: float = 0.01, floor: int = 0) -> None:
        """`density`: fraction that is sent, 0..1. `floor`: parameters of up to this size are sent whole."""
        super().__init__(floor)
        self._density = check_density(density)

    def density(self, _name: str) -> float:
        return self._density

    def accumulate(self, name: str, gradient: Floats) -> Floats:
        residual = self.kept("residual", name, gradient.size)
        residual += gradient
        return residual

    def on_sent(self, name: str, indices: Indices) -> None:
        self.clear(self._kept["residual"][name], indices)
