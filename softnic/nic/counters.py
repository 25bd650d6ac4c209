"""Counters of the NIC. Every frame received ends in exactly one of: a segment, another frame, a drop."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class NicCounters:
    """Frames and bytes on the wire side (Ethernet, without FCS), segments and bytes on the host side."""

    tx_segments: int = 0
    tx_bytes: int = 0
    """Original bytes."""
    tx_frames: int = 0
    tx_wire_bytes: int = 0
    tx_other_frames: int = 0
    tx_offload_frames: int = 0
    tx_offload_original_bytes: int = 0
    tx_offload_encoded_bytes: int = 0
    """TCP payload bytes of offloaded frames, payload headers and padding included."""
    tx_offload_raw_frames: int = 0
    """Offloaded frames sent RAW: they would not have shrunk, or the peer lacks the codec."""
    tx_auto_compressed_bytes: int = 0
    """Original bytes that codec = "auto" chose to encode (some frames may still be RAW because they would not
    shrink)."""
    tx_auto_raw_bytes: int = 0
    """Original bytes that codec = "auto" sent RAW."""
    tx_auto_trials: int = 0
    """Trials of the alternative; most end with a return."""
    tx_auto_to_raw: int = 0
    """Decisions to stop compressing a stream."""
    tx_auto_to_compressed: int = 0
    """Decisions to resume compressing it."""
    tx_drop_length: int = 0
    """Frames from the host that are too short or too long for the link."""
    loopback_frames: int = 0
    """Frames to this NIC itself: also counted as sent and received, but never on the wire."""
    loopback_wire_bytes: int = 0

    rx_segments: int = 0
    rx_bytes: int = 0
    rx_frames: int = 0
    rx_wire_bytes: int = 0
    rx_other_frames: int = 0
    rx_offload_frames: int = 0
    rx_offload_original_bytes: int = 0
    rx_offload_encoded_bytes: int = 0
    rx_offload_raw_frames: int = 0
    rx_steered_frames: int = 0
    """Frames that arrived at another queue than their flow's, which counts them; passed on to it."""

    rx_drop_frame: int = 0
    """Too short for Ethernet."""
    rx_drop_mac: int = 0
    """To another MAC."""
    rx_drop_ip: int = 0
    rx_drop_ip_checksum: int = 0
    rx_drop_ip_fragment: int = 0
    rx_drop_ip_address: int = 0
    """TCP to another address, or from this one."""
    rx_drop_tcp: int = 0
    rx_drop_tcp_checksum: int = 0
    rx_drop_offload: int = 0
    """Malformed payload of an offloaded frame."""
    rx_drop_steered: int = 0
    """At another queue than their flow's, which had no space for them."""

    @property
    def rx_dropped(self) -> int:
        return sum(value for name, value in asdict(self).items() if name.startswith("rx_drop_"))
