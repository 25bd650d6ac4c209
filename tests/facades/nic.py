"""The NIC without I/O: nodes, flows, the adaptive codec, counters."""

from __future__ import annotations

from softnic.nic.adaptive_codec import HOLD_S, AdaptiveCodec, CodecTimer, FixedSpeed, Stopwatch
from softnic.nic.counters import NicCounters
from softnic.nic.flows import DEFAULT_MSS, MAX_OFFERS, MIN_MSS, Flow, Flows, Key, flow_max_payload
from softnic.nic.nic import OFFLOADED_BYTES, Mode, Nic
from softnic.nic.node import Node
from softnic.nic.observer import SegmentObserver
from softnic.nic.offload import OffloadTable
from softnic.tapnic.segments import segment_of

__all__ = [
    "DEFAULT_MSS",
    "HOLD_S",
    "MAX_OFFERS",
    "MIN_MSS",
    "OFFLOADED_BYTES",
    "AdaptiveCodec",
    "FixedSpeed",
    "Flow",
    "Flows",
    "Key",
    "Mode",
    "Nic",
    "NicCounters",
    "Node",
    "OffloadTable",
    "SegmentObserver",
    "Stopwatch",
    "flow_max_payload",
    "segment_of",
    "time_codec",
]


def time_codec(node: Node, timer: CodecTimer) -> None:
    """Let a node's NIC time its codecs by `timer`."""
    node.nic._codec_timer = timer
