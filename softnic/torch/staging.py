"""Registered memory for tensors: where NICs work on their elements.

Tensors may lie anywhere: with any strides, on a GPU, in memory that NICs do not know. Their elements are copied to a
flat piece of registered memory, which is used again and again, and what came of them is copied back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from softnic.comm.scratch import Scratch
from softnic.torch.devices import Fence, Lanes

Placed = tuple[int, torch.Tensor]
"""A tensor, and the element of a stage where its own begin."""


class Stage:
    """`count` elements of a type, flat, with any contents, until `free`. Raises OSError where there is no memory."""

    def __init__(self, pool: Scratch, lanes: Lanes, count: int, dtype: torch.dtype) -> None:
        self._pool = pool
        self._lanes = lanes
        self._piece = pool.take(count * dtype.itemsize)
        self.flat = torch.from_numpy(self._piece.bytes).view(dtype)

    @property
    def bytes(self) -> torch.Tensor:
        """For what moves elements and does not compute with them."""
        return self.flat.view(torch.uint8)

    def load(self, tensors: Sequence[Placed], fence: Fence) -> None:
        sources = self._lanes.download([tensor for _, tensor in tensors], fence)
        for (start, tensor), source in zip(tensors, sources, strict=True):
            self._part(start, tensor).copy_(source)

    def store(self, tensors: Sequence[Placed], fence: Fence) -> None:
        self._lanes.upload([self._part(*place) for place in tensors], [tensor for _, tensor in tensors], fence)

    def free(self) -> None:
        self._pool.give(self._piece)

    def _part(self, start: int, tensor: torch.Tensor) -> torch.Tensor:
        return self.flat[start : start + tensor.numel()].view(tensor.shape)


def placed(tensors: Iterable[torch.Tensor], start: int = 0) -> list[Placed]:
    """One behind the other."""
    found = []
    for tensor in tensors:
        found.append((start, tensor))
        start += tensor.numel()
    return found
