"""Sums over flows, for statistics: computed in C, since a node may have thousands (native/tcp/flow_totals.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softnic._native import ffi, lib
from softnic.tcp.flow import Flow

MAX_PEERS: int = lib.SN_TOTALS_PEERS
"""Peers with an entry of their own."""


@dataclass(frozen=True, slots=True)
class PeerFlows:
    """The flows to one peer. Sizes are original bytes."""

    peer: int | None
    """None: all peers without an entry of their own."""
    flows: int
    send_queue: int
    """Written and not acknowledged."""
    receive_queue: int
    """Received in order and not consumed."""
    retransmits: int
    srtt: float
    """Mean of the flows that have measured a round trip; 0 if none has."""
    srtt_max: float


@dataclass(frozen=True, slots=True)
class FlowTotals:
    """Sums over flows."""

    unacknowledged: int
    """Flows with bytes that were written and not acknowledged."""
    peers: list[PeerFlows]


def totals_of(flows: Sequence[Flow]) -> FlowTotals:
    """Return the sums over flows, with an entry for each of the first MAX_PEERS peers and one for all others."""
    totals = ffi.new("sn_flow_totals *")
    lib.sn_flow_totals_add(totals, ffi.new("sn_flow *[]", [flow.c for flow in flows]), len(flows))
    peers = [
        PeerFlows(
            None if each.peer_ip < 0 else each.peer_ip,
            each.flows,
            each.send_queue,
            each.receive_queue,
            each.retransmits,
            each.srtt_sum / each.measured if each.measured else 0.0,
            each.srtt_max,
        )
        for each in totals.peers[0 : totals.peer_count]
    ]
    return FlowTotals(totals.unacknowledged, peers)
