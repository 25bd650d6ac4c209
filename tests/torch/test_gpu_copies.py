"""Copies of GPU tensors, with a fake CUDA that logs the calls."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from softnic.torch import gpu_copies
from softnic.torch.gpu_copies import CopyStreams, ReadyEvents

DEVICE = torch.device("cuda", 0)


class GpuTensor(torch.Tensor):
    """Reports a GPU as its device; its elements are those of `host`."""

    host: torch.Tensor
    asked: list[str]

    @staticmethod
    def __new__(cls, host: torch.Tensor, asked: list[str]) -> GpuTensor:
        made: GpuTensor = torch.Tensor._make_wrapper_subclass(cls, host.shape, dtype=host.dtype, device=DEVICE)
        made.host, made.asked = host, asked
        return made

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> GpuTensor:
        assert non_blocking
        self.asked.append("upload")
        self.host.copy_(source)
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:  # by `data`, with a version counter of its own
            args[0].asked.append("uncounted")
            return args[0]
        assert func is torch.ops.aten.copy_.default, func
        target, source = args[:2]
        source.asked.append("download")
        return target.copy_(source.host)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the log of CUDA calls."""
    found: list[str] = []

    def stream(_: torch.device) -> Any:
        waits, ends = (lambda event: found.append(f"wait for {event.of}")), (lambda: found.append("synchronize"))
        return SimpleNamespace(wait_event=waits, synchronize=ends)

    class Event:
        of = ""

        def record(self, on: str) -> None:
            self.of = on

    @contextmanager
    def on(_: Any) -> Any:
        yield

    def pinned(like: torch.Tensor) -> torch.Tensor:
        found.append("pin")
        return torch.empty(like.shape, dtype=like.dtype)

    monkeypatch.setattr("torch.cuda.Stream", stream)
    monkeypatch.setattr("torch.cuda.Event", Event)
    monkeypatch.setattr("torch.cuda.stream", on)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: f"the caller's stream of {device}")
    monkeypatch.setattr(gpu_copies, "_pinned", pinned)
    return found


def test_downloads_wait_for_the_callers_stream_and_are_synchronized(log: list[str]) -> None:
    on_gpu, here = GpuTensor(torch.arange(4.0), log), torch.ones(2)
    fence = ReadyEvents([on_gpu, here])
    first, second = CopyStreams().download([on_gpu, here], fence)
    assert torch.equal(first, torch.arange(4.0))
    assert second is here
    assert log == ["wait for the caller's stream of cuda:0", "pin", "download", "synchronize"]


def test_uploads_are_synchronized(log: list[str]) -> None:
    on_gpu = GpuTensor(torch.zeros(4), log)
    targets = [on_gpu, torch.zeros(2)]
    CopyStreams().upload([torch.arange(4.0), torch.ones(2)], targets, ReadyEvents(targets))
    assert torch.equal(on_gpu.host, torch.arange(4.0))
    assert torch.equal(targets[1], torch.ones(2))
    assert log == ["pin", "wait for the caller's stream of cuda:0", "uncounted", "upload", "synchronize"]


def test_host_tensors_need_no_gpu(log: list[str]) -> None:
    tensor = torch.ones(3)
    lanes, fence = CopyStreams(), ReadyEvents([tensor])
    assert lanes.download([tensor], fence)[0] is tensor
    lanes.upload([torch.zeros(3)], [tensor], fence)
    assert not tensor.any()
    assert not log
