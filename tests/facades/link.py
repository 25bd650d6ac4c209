"""Links: UDP with VXLAN, the emulation of bad links, filters of unknown sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softnic._native import ffi
from softnic.link import forwarding as forwarding_table
from softnic.link import udp
from softnic.link import unknown_sources as unknown_sources
from softnic.link.base import Link
from softnic.link.emulation import AHEAD, BURST, TOGETHER, EmulatedLink, EmulationCounters
from softnic.link.emulation_spec import COALESCE_S, EmulationSpec
from softnic.link.forwarding import ForwardingTable, LinkPeer
from softnic.link.rate_limited_log import Log
from softnic.link.udp import EncryptionSettings, VxlanLink
from softnic.link.unknown_sources import program
from softnic.link.vxlan_counters import VxlanCounters

if TYPE_CHECKING:  # worlds are run without pytest
    import pytest

__all__ = [
    "AHEAD",
    "BURST",
    "COALESCE_S",
    "TOGETHER",
    "EmulatedLink",
    "EmulationCounters",
    "EmulationSpec",
    "EncryptionSettings",
    "ForwardingTable",
    "Link",
    "LinkPeer",
    "Log",
    "VxlanCounters",
    "VxlanLink",
    "change_rate",
    "disable_gso",
    "forwarding_table",
    "learned_macs",
    "peer_of",
    "program",
    "replace_native",
    "ring_bytes",
    "tx_space",
    "udp",
    "unknown_sources",
]


def change_rate(link: EmulatedLink, rate_bps: float) -> None:
    """Change the rate of an emulated link while it is in use."""
    link._c.byte_s = 8 / rate_bps


def peer_of(link: VxlanLink) -> LinkPeer:
    """Return the only peer of a link."""
    (peer,) = link._forwarding.peers
    return peer


def disable_gso(link: VxlanLink) -> None:
    """Send single datagrams to the only peer of a link."""
    peer_of(link).disable_gso()


def learned_macs(link: VxlanLink) -> list[bytes]:
    """Return the MACs behind peers that a link has learned, the oldest first."""
    return list(link._forwarding._learned)


def replace_native(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    """Let links send through `library` instead of the C extension."""
    monkeypatch.setattr(udp, "lib", library)


def tx_space(link: Link, now: float) -> int:
    """Return the number of bytes that a link accepts now."""
    return link.tx_space(now)


def ring_bytes(link: EmulatedLink) -> int:
    """Return the bytes of memory that the frames in flight of an emulated link occupy, with what is free for more."""
    c = link._c
    return int(c.size + c.capacity * (ffi.sizeof("sn_emulated_frame") + ffi.sizeof("double")))
