"""The NIC of an unmodified kernel: the TAP device, its flows and its retransmit cache."""

from __future__ import annotations

from softnic.tapnic.device import OTHER, TCP, Packet, Tap
from softnic.tapnic.flows import MAX_UNANSWERED, KernelFlows
from softnic.tapnic.nic import KernelNode as TapNic
from softnic.tapnic.retransmit_cache import CUT, Part, Stretch
from softnic.tapnic.retransmit_cache import Stretches as RetransmitCache

__all__ = [
    "CUT",
    "MAX_UNANSWERED",
    "OTHER",
    "TCP",
    "KernelFlows",
    "Packet",
    "Part",
    "RetransmitCache",
    "Stretch",
    "Tap",
    "TapNic",
    "forget_flows",
    "frames_pending",
]


def forget_flows(node: TapNic) -> None:
    """Let a NIC forget every flow that it has seen begin."""
    node.flows._flows.clear()


def frames_pending(node: TapNic) -> int:
    """Return how many frames wait between a turn's steps: none after a turn."""
    return len(node._pending)
