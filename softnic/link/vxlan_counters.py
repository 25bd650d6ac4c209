"""Counters of a VXLAN link."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class VxlanCounters:
    """Frames, and Ethernet bytes where named so. Each frame that is not delivered is in exactly one counter."""

    sent_frames: int = 0
    """Accepted by the kernel, counted once per destination peer."""
    sent_bytes: int = 0
    received_frames: int = 0
    received_bytes: int = 0
    dropped_no_peer: int = 0
    """Sent while no peer was configured."""
    dropped_full: int = 0
    """Both the socket and the queue before it were full."""
    dropped_send_error: int = 0
    """Refused by the kernel: no route, host down, longer than a datagram."""
    dropped_unknown_source: int = 0
    """From an address that is no peer's. Those dropped by the kernel's filter are in `link_kernel_dropped_datagrams`.
    """
    dropped_malformed: int = 0
    """Datagrams that are not VXLAN of this VNI, or too short for a frame."""
    peers_moved: int = 0
    """How often something authentic told where a peer is reached from then on."""
    unknown_source_floods: int = 0
    """How often the kernel's filter of unknown sources was installed."""
