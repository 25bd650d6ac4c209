"""Virtual time: one clock, one network in memory."""

from __future__ import annotations

from softnic.link.memory import MemoryLink, MemoryNetwork, PortCounters
from softnic.sim.clock import Actor, Stalled, VirtualClock
from softnic.sim.node import FIRST_IP, TOS, Application, ConnectionEvent, SimNode

__all__ = [
    "FIRST_IP",
    "TOS",
    "Actor",
    "Application",
    "ConnectionEvent",
    "MemoryLink",
    "MemoryNetwork",
    "PortCounters",
    "SimNode",
    "Stalled",
    "VirtualClock",
]
