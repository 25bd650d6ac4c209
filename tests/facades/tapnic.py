"""The NIC of an unmodified kernel: the TAP device, its flows and its retransmit cache."""

from __future__ import annotations

from softnic.tapnic.device import OTHER, TCP, TapDevice, TapPacket
from softnic.tapnic.flows import (
    DEFAULT_MSS,
    MAX_OFFERS,
    MAX_UNANSWERED,
    MIN_MSS,
    TapFlow,
    TapFlowTable,
    flow_max_payload,
)
from softnic.tapnic.nic import TapNic
from softnic.tapnic.retransmit_cache import CUT, RetransmitCache, TaggedRange, TxPart

__all__ = [
    "CUT",
    "DEFAULT_MSS",
    "MAX_OFFERS",
    "MAX_UNANSWERED",
    "MIN_MSS",
    "OTHER",
    "TCP",
    "RetransmitCache",
    "TaggedRange",
    "TapDevice",
    "TapFlow",
    "TapFlowTable",
    "TapNic",
    "TapPacket",
    "TxPart",
    "flow_max_payload",
    "forget_flows",
    "frames_pending",
]


def forget_flows(node: TapNic) -> None:
    """Let a NIC forget every flow whose SYN it has seen."""
    node.flows._flows.clear()


def frames_pending(node: TapNic) -> int:
    """Return how many frames wait between a turn's steps: none after a turn."""
    return len(node._pending)
