"""The gradients of several parameters as one array in registered memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from softnic.gradients.method import Floats, Gradients
from softnic.ipc import regions


class Flat:
    """An array that is reused from call to call, and grows to the largest size requested."""

    def __init__(self) -> None:
        self._memory: Floats = np.empty(0, np.float32)

    def get(self, gradients: Gradients, multiple: int = 1, more: int = 0) -> Floats:
        """Return an array for the elements of all gradients and `more` others, padded with zeros to a multiple.

        Its other contents are undefined. It is ordinary memory if the system has no memory to register.
        """
        used = sum(gradient.size for gradient in gradients.values()) + more
        size = used + -used % multiple
        if self._memory.size < size:
            try:
                self._memory = regions.empty(size)
            except OSError:
                self._memory = np.empty(size, np.float32)
        self._memory[used:size] = 0
        return self._memory[:size]


def cut(flat: Floats, gradients: Gradients) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the name of each parameter, its gradients, and its part of the flat array."""
    start = 0
    for name, gradient in gradients.items():
        yield name, gradient, flat[start : start + gradient.size]
        start += gradient.size


def zero_nonfinite(array: Floats) -> None:
    """Replace infinities and NaNs of a kept array by zeros. Programs skip a step with such gradients; kept, they would
    be in all later steps."""
    if not np.isfinite(array).all():
        array[~np.isfinite(array)] = 0
