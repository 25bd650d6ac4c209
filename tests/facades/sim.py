"""Virtual time: one clock, one network in memory."""

from __future__ import annotations

from softnic.link.memory import MemoryLink, MemoryNetwork, PortCounters
from softnic.sim.clock import MAX_ROUNDS, Actor, Stalled, VirtualClock

__all__ = [
    "MAX_ROUNDS",
    "Actor",
    "MemoryLink",
    "MemoryNetwork",
    "PortCounters",
    "Stalled",
    "VirtualClock",
]
