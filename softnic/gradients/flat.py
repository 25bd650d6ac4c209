"""The gradients of several parameters as one array, in memory that NICs read; and collectives over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from softnic.comm.communicator import Communicator
from softnic.gradients.method import Floats, Gradients
from softnic.ipc import regions


class Flat:
    """An array that is kept from call to call, as long as the longest one needed."""

    def __init__(self) -> None:
        self._memory: Floats = np.empty(0, np.float32)

    def room(self, gradients: Gradients, multiple: int = 1, more: int = 0) -> Floats:
        """An array as long as all of them together and `more` elements; its contents mean nothing, but what is behind
        these to reach a multiple of so many elements is zero. Ordinary memory, if the system has no other."""
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
    """By parameter: its name, its gradients, and its part of the flat array."""
    start = 0
    for name, gradient in gradients.items():
        yield name, gradient, flat[start : start + gradient.size]
        start += gradient.size


def collective(comm: Communicator, call: str, *buffers: Any, **options: Any) -> None:
    """A call of a communicator on buffers, by name, executed by the NICs where there are any: with less CPU time than
    by the ranks, and with the same bits."""
    comm.Init()
    if comm.executed:
        getattr(comm, f"I{call.lower()}")(*buffers, **options).Wait()
    else:
        getattr(comm, call)(*buffers, **options)


def zero_nonfinite(array: Floats) -> None:
    """Puts zeros where what is kept is infinite or NaN: such gradients make a step that programs skip, and would be in
    all steps after it."""
    if not np.isfinite(array).all():
        array[~np.isfinite(array)] = 0
