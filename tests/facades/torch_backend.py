"""The internals of softnic.torch. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from softnic.torch import gpu_copies, hooks, work_items
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import Compression
from softnic.torch.flight_recorder import FlightRecorder, GroupCalls
from softnic.torch.gpu_copies import CopyStreams, ReadyEvents
from softnic.torch.hooks import HookState, average, hook
from softnic.torch.launch import fill
from softnic.torch.untraced import Untraced, untraced

__all__ = [
    "Compression",
    "CopyStreams",
    "FlightRecorder",
    "GroupCalls",
    "HookState",
    "ReadyEvents",
    "SoftnicGroup",
    "Untraced",
    "average",
    "fill",
    "hook",
    "hooks",
    "interrupt_waits",
    "pin_by",
    "untraced",
]


def pin_by(monkeypatch: pytest.MonkeyPatch, pin: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let `pin` allocate memory for copies from and to a GPU; its argument is a tensor of that shape and type."""
    monkeypatch.setattr(gpu_copies, "_pinned", pin)


def interrupt_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt callers that wait for a collective of their own, as Ctrl-C does."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(work_items, "wait_within", interrupted)
