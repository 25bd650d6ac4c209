"""Hosts in network namespaces, each with a kernel network stack, joined by cables with configurable faults."""

from __future__ import annotations

from softnic.cluster.netns_lab.cable import Cable, bad_cable
from softnic.cluster.netns_lab.host import NIC_MTU, RUN_S, WIRE_PORT, HostError, NetnsHost, join, missing

__all__ = ["NIC_MTU", "RUN_S", "WIRE_PORT", "Cable", "HostError", "NetnsHost", "bad_cable", "join", "missing"]
