"""The inside of softnic.torch. Importing it imports torch."""

from __future__ import annotations

from softnic.torch import hooks
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
    "untraced",
]
