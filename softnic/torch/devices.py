"""Tensors of a GPU, on their way to memory that NICs read and back.

Both ways lead through pinned memory, which a GPU's copy engine reaches by itself; torch keeps that for later. A group's
thread copies on a stream of its own, which waits for what the caller's stream had to do when the call was made, and it
waits for its copies: what a Work says is over is over on the GPU too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


class Fence:
    """What GPUs have to do before tensors can be read: made where the call is made, in the caller's thread."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.events: dict[torch.device, torch.cuda.Event] = {}
        for device in {tensor.device for tensor in tensors if on_gpu(tensor)}:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            self.events[device] = event


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda"


class Lanes:
    """The streams of one thread: a GPU's, made when it is first needed."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def download(self, tensors: Sequence[torch.Tensor], fence: Fence) -> list[torch.Tensor]:
        """Tensors of the host with the same elements; those that are there already as they are."""
        found = []
        for tensor in tensors:
            if not on_gpu(tensor):
                found.append(tensor)
                continue
            with torch.cuda.stream(self._stream(tensor.device, fence)):
                found.append(_pinned(tensor).copy_(tensor, non_blocking=True))
        self._finish(tensors)
        return found

    def upload(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], fence: Fence) -> None:
        """Copies tensors of the host to others, wherever these are."""
        kept = []
        for source, target in zip(sources, targets, strict=True):
            if not on_gpu(target):
                target.copy_(source)
                continue
            kept.append(_pinned(target).copy_(source))
            with torch.cuda.stream(self._stream(target.device, fence)):
                target.copy_(kept[-1], non_blocking=True)
        self._finish(targets)

    def _stream(self, device: torch.device, fence: Fence) -> torch.cuda.Stream:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        if device in fence.events:
            stream.wait_event(fence.events[device])
        return stream

    def _finish(self, tensors: Iterable[torch.Tensor]) -> None:
        for device in {tensor.device for tensor in tensors if on_gpu(tensor)}:
            self._streams[device].synchronize()


def _pinned(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
