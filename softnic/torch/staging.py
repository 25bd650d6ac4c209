"""Registered memory in which NICs work on the elements of tensors.

Tensors may have any strides, and lie on a GPU or in memory that is not registered. Their elements are copied to a flat
buffer of registered memory, which is reused, and the results are copied back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from softnic.collectives.elements import Array
from softnic.comm.scratch import Scratch
from softnic.torch.gpu_copies import CopyStreams, ReadyEvents

TensorAt = tuple[int, torch.Tensor]
"""The index in a staging buffer where the elements of a tensor begin, and the tensor."""


class StagingBuffer:
    """`count` uninitialized elements of one type, until `free`. Raises OSError if there is no memory."""

    def __init__(self, pool: Scratch, streams: CopyStreams, count: int, dtype: torch.dtype) -> None:
        self._pool = pool
        self._streams = streams
        self._piece = pool.allocate(count * dtype.itemsize)
        self.flat = torch.from_numpy(self._piece.bytes).view(dtype)

    @property
    def elements(self) -> torch.Tensor | Array:
        """The buffer for calls of a communicator, which look at an array of numpy's in a third of the time."""
        return self.flat if self.flat.dtype == torch.bfloat16 else self.flat.numpy()

    @property
    def bytes(self) -> torch.Tensor:
        """The buffer as bytes, for calls that move elements only."""
        return self.flat.view(torch.uint8)

    @property
    def words(self) -> Array:
        """The buffer as float32, whatever the elements, for codecs that keep every bit."""
        return self.flat.view(torch.float32).numpy()

    def load(self, tensors: Sequence[TensorAt], ready: ReadyEvents) -> None:
        sources = self._streams.download([tensor for _, tensor in tensors], ready)
        for (start, tensor), source in zip(tensors, sources, strict=True):
            self._view(start, tensor).copy_(source)

    def store(self, tensors: Sequence[TensorAt], ready: ReadyEvents) -> None:
        self._streams.upload([self._view(*each) for each in tensors], [tensor for _, tensor in tensors], ready)

    def free(self) -> None:
        self._pool.free(self._piece)

    def _view(self, start: int, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape == self.flat.shape:
            return self.flat
        return self.flat[start : start + tensor.numel()].view(tensor.shape)


def consecutive(tensors: Iterable[torch.Tensor], start: int = 0) -> list[TensorAt]:
    """Assign consecutive ranges of a staging buffer to tensors."""
    found = []
    for tensor in tensors:
        found.append((start, tensor))
        start += tensor.numel()
    return found
