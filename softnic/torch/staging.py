"""Registered memory in which NICs work on the elements of tensors.

Tensors may have any strides, and lie on a GPU or in memory that is not registered. Their elements are copied to a flat
buffer of registered memory, which is reused, and the results are copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from softnic.collectives.elements import Array
from softnic.comm.scratch import Scratch
from softnic.torch.devices import Copies, Event, ReadyEvents, Streams, on_device, uncounted

TensorAt = tuple[int, torch.Tensor]
"""The index in a staging buffer where the elements of a tensor begin, and the tensor."""


class StagingBuffer:
    """`count` uninitialized elements of one type, until `free`. Raises OSError if there is no memory."""

    def __init__(
        self, pool: Scratch, streams: Callable[[torch.device], Streams], count: int, dtype: torch.dtype
    ) -> None:
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

    def load(self, tensors: Sequence[TensorAt], ready: ReadyEvents) -> list[Event]:
        """Copy tensors to the buffer. Returns the events that complete the copies from devices."""
        copies = [(tensor, self._view(start, tensor)) for start, tensor in tensors]
        events = []
        for device, on_it in _by_device(copies, 0).items():
            if device is None:
                for source, target in on_it:
                    target.copy_(source)
            else:
                events.append(self._streams(device).download(on_it, ready.of(device)))
        return events

    def store(self, tensors: Sequence[TensorAt], ready: ReadyEvents) -> list[Event]:
        """Copy the buffer to tensors. Returns the events that complete the copies to devices."""
        copies = [(self._view(start, tensor), tensor) for start, tensor in tensors]
        events = []
        for device, on_it in _by_device(copies, 1).items():
            if device is None:
                for source, target in on_it:
                    uncounted(target).copy_(source)
            else:
                events.append(self._streams(device).upload(on_it, ready.of(device)))
        return events

    def free(self) -> None:
        self._pool.free(self._piece)

    def _view(self, start: int, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape == self.flat.shape:
            return self.flat
        return self.flat[start : start + tensor.numel()].view(tensor.shape)


def _by_device(copies: Copies, place: int) -> dict[torch.device | None, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Group copies by the device of their source (place 0) or target (1); None: the host."""
    found: dict[torch.device | None, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for copy in copies:
        tensor = copy[place]
        found.setdefault(tensor.device if on_device(tensor) else None, []).append(copy)
    return found


def consecutive(tensors: Iterable[torch.Tensor], start: int = 0) -> list[TensorAt]:
    """Assign consecutive ranges of a staging buffer to tensors."""
    found = []
    for tensor in tensors:
        found.append((start, tensor))
        start += tensor.numel()
    return found
