"""The NIC of an unmodified kernel: the TAP device, its flows and its retransmit cache."""

from __future__ import annotations

from softnic.tapnic.device import OTHER, TCP, TapDevice, TapPacket
from softnic.tapnic.flows import MAX_UNANSWERED, TapFlowTable
from softnic.tapnic.nic import TapNic
from softnic.tapnic.retransmit_cache import CUT, RetransmitCache, TaggedRange, TxPart

__all__ = [
    "CUT",
    "MAX_UNANSWERED",
    "OTHER",
    "TCP",
    "RetransmitCache",
    "TaggedRange",
    "TapDevice",
    "TapFlowTable",
    "TapNic",
    "TapPacket",
    "TxPart",
    "forget_flows",
    "frames_pending",
]


def forget_flows(node: TapNic) -> None:
    """Let a NIC forget every flow that it has seen begin."""
    node.flows._flows.clear()


def frames_pending(node: TapNic) -> int:
    """Return how many frames wait between a turn's steps: none after a turn."""
    return len(node._pending)
