"""Registered memory for tensors: where NICs work on their elements.

Tensors may lie anywhere: with any strides, on a GPU, in memory that NICs do not know. Their elements are copied to a
flat piece of registered memory, which is used again and again, and what came of them is copied back.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from softnic.comm.scratch import Scratch

Placed = tuple[int, torch.Tensor]
"""A tensor, and the element of a stage where its own begin."""


class Stage:
    """`count` elements of a type, flat, with any contents, until `free`. Raises OSError where there is no memory."""

    def __init__(self, pool: Scratch, count: int, dtype: torch.dtype) -> None:
        self._pool = pool
        self._piece = pool.take(count * dtype.itemsize)
        self.flat = torch.from_numpy(self._piece.bytes).view(dtype)

    @property
    def bytes(self) -> torch.Tensor:
        """For what moves elements and does not compute with them."""
        return self.flat.view(torch.uint8)

    def load(self, tensors: Iterable[Placed]) -> None:
        for start, tensor in tensors:
            self._part(start, tensor).copy_(tensor)

    def store(self, tensors: Iterable[Placed]) -> None:
        for start, tensor in tensors:
            tensor.copy_(self._part(start, tensor))

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
