"""The NIC without I/O: nodes, flows, the adaptive codec, counters."""

from __future__ import annotations

from collections.abc import Callable

from softnic.link.base import UdpPath
from softnic.nic.adaptive_codec import HOLD_S, AdaptiveCodec, CodecTimer, FixedSpeed, Stopwatch
from softnic.nic.counters import NicCounters
from softnic.nic.flows import DetachedFlow, NicFlow
from softnic.nic.nic import Mode, Nic
from softnic.nic.node import Node
from softnic.nic.observer import SegmentObserver
from softnic.nic.offload import OffloadTable
from softnic.nic.segmenter import OFFLOADED_BYTES
from softnic.tapnic.segments import segment_of

__all__ = [
    "HOLD_S",
    "OFFLOADED_BYTES",
    "AdaptiveCodec",
    "DetachedFlow",
    "FixedSpeed",
    "Mode",
    "Nic",
    "NicCounters",
    "NicFlow",
    "Node",
    "OffloadTable",
    "SegmentObserver",
    "Stopwatch",
    "UdpPath",
    "replace_udp",
    "segment_of",
    "time_codec",
]


def time_codec(node: Node, timer: CodecTimer) -> None:
    """Let a node's NIC time its codecs by `timer`."""
    node.nic._codec_timer = timer


def replace_udp(nic: Nic, send: Callable[[UdpPath], int]) -> None:
    """Let the kernel's answer to a NIC's frames be that of `send`."""
    nic._segmenter.send_udp = send  # type: ignore[method-assign, assignment]
