"""What frames leave through: UDP with VXLAN, the emulation of bad links, filters of unknown sources."""

from __future__ import annotations

from softnic.link import places as forwarding_table
from softnic.link import strangers as unknown_sources
from softnic.link import udp
from softnic.link.base import Link
from softnic.link.emulation import AHEAD, BURST, TOGETHER, EmulatedLink, EmulationCounters
from softnic.link.emulation_spec import COALESCE_S, EmulationSpec
from softnic.link.notices import Say as Log
from softnic.link.places import Peer
from softnic.link.places import Places as ForwardingTable
from softnic.link.strangers import program
from softnic.link.udp import Sealing, VxlanCounters, VxlanLink

__all__ = [
    "AHEAD",
    "BURST",
    "COALESCE_S",
    "TOGETHER",
    "EmulatedLink",
    "EmulationCounters",
    "EmulationSpec",
    "ForwardingTable",
    "Link",
    "Log",
    "Peer",
    "Sealing",
    "VxlanCounters",
    "VxlanLink",
    "forwarding_table",
    "program",
    "udp",
    "unknown_sources",
]
