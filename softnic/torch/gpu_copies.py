"""Copies of GPU tensors to and from memory that NICs read.

Both directions go through pinned memory, which the GPU's copy engine reaches by itself. The thread of a process group
copies on a stream of its own. That stream waits for the work that the caller's stream had when the call was made, and
the thread waits for its copies: a completed Work is complete on the GPU too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


class ReadyEvents:
    """CUDA events after which tensors may be read. Created in the caller's thread when the call is made."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.events: dict[torch.device, torch.cuda.Event] = {}
        for device in {tensor.device for tensor in tensors if on_gpu(tensor)}:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            self.events[device] = event


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda"


def uncounted(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with a version counter of its own, for writes that autograd must not see.

    torch's backends write results to the memory of tensors. No operation records that, so a tensor that is needed by
    back-propagation may be the output of a collective.
    """
    return tensor.data


class CopyStreams:
    """The CUDA streams of one thread, one for each device."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def download(self, tensors: Sequence[torch.Tensor], ready: ReadyEvents) -> list[torch.Tensor]:
        """Return host tensors with the same elements: copies of GPU tensors, others as they are."""
        found = []
        for tensor in tensors:
            if not on_gpu(tensor):
                found.append(tensor)
                continue
            with torch.cuda.stream(self._stream(tensor.device, ready)):
                found.append(_pinned(tensor).copy_(tensor, non_blocking=True))
        self._synchronize(tensors)
        return found

    def upload(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], ready: ReadyEvents) -> None:
        """Copy host tensors to targets on any device, as results of torch's backends: see `uncounted`."""
        pinned = []
        for source, target in zip(sources, targets, strict=True):
            if not on_gpu(target):
                uncounted(target).copy_(source)
                continue
            pinned.append(_pinned(target).copy_(source))
            with torch.cuda.stream(self._stream(target.device, ready)):
                uncounted(target).copy_(pinned[-1], non_blocking=True)
        self._synchronize(targets)

    def _stream(self, device: torch.device, ready: ReadyEvents) -> torch.cuda.Stream:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        if device in ready.events:
            stream.wait_event(ready.events[device])
        return stream

    def _synchronize(self, tensors: Iterable[torch.Tensor]) -> None:
        for device in {tensor.device for tensor in tensors if on_gpu(tensor)}:
            self._streams[device].synchronize()


def _pinned(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
