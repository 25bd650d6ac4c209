"""Virtual time: one clock, one network in memory."""

from __future__ import annotations

from softnic.link.memory import Actor, MemoryLink, Network, PortCounters, Stalled, VirtualClock

__all__ = [
    "Actor",
    "MemoryLink",
    "Network",
    "PortCounters",
    "Stalled",
    "VirtualClock",
]
