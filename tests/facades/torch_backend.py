"""The inside of softnic.torch. Importing it imports torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from softnic.torch import devices, hooks
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import Compression
from softnic.torch.devices import Fence as ReadyEvents
from softnic.torch.devices import Lanes as CopyStreams
from softnic.torch.hooks import State, average, hook
from softnic.torch.launch import fill
from softnic.torch.untraced import Untraced, untraced

__all__ = [
    "Compression",
    "CopyStreams",
    "ReadyEvents",
    "SoftnicGroup",
    "State",
    "Untraced",
    "average",
    "fill",
    "hook",
    "hooks",
    "pin_by",
    "untraced",
]


def pin_by(monkeypatch: pytest.MonkeyPatch, pin: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let memory for copies from and to a GPU be made by `pin`, which gets what it is to be like."""
    monkeypatch.setattr(devices, "_pinned", pin)
