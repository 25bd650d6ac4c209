"""What the NIC counted. Every frame received ends in exactly one of: a segment, another frame, a drop."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class NicCounters:
    """Frames and bytes on the wire side (Ethernet, without FCS) and segments and bytes on the host side."""

    tx_segments: int = 0
    tx_bytes: int = 0
    """Original bytes."""
    tx_frames: int = 0
    tx_wire_bytes: int = 0
    tx_other_frames: int = 0
    tx_offload_frames: int = 0
    tx_offload_original_bytes: int = 0
    tx_offload_encoded_bytes: int = 0
    """TCP payload bytes of these frames, payload headers and padding included."""
    tx_offload_raw_frames: int = 0
    """Of them, those that would not have shrunk, or had no codec that the peer knows."""
    tx_auto_compressed_bytes: int = 0
    """Original bytes that codec = "auto" let be encoded (a frame of theirs may be RAW, for want of shrinking)."""
    tx_auto_raw_bytes: int = 0
    """And those that it sent RAW."""
    tx_auto_trials: int = 0
    """Looks at the other way; most end where they began."""
    tx_auto_to_raw: int = 0
    """Decisions to stop compressing a stream."""
    tx_auto_to_compressed: int = 0
    """Decisions to compress it again."""
    tx_drop_length: int = 0
    """Frames from the host that the link cannot carry."""
    loopback_frames: int = 0
    """To this NIC itself: sent and received, as tx_frames and rx_frames say, but never on the wire."""
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

    rx_drop_frame: int = 0
    """Too short for Ethernet."""
    rx_drop_mac: int = 0
    """To another NIC."""
    rx_drop_ip: int = 0
    rx_drop_ip_checksum: int = 0
    rx_drop_ip_fragment: int = 0
    rx_drop_ip_address: int = 0
    """TCP to another host, or from this one."""
    rx_drop_tcp: int = 0
    rx_drop_tcp_checksum: int = 0
    rx_drop_offload: int = 0
    """Malformed payload of an offloaded frame."""

    @property
    def rx_dropped(self) -> int:
        return sum(value for name, value in asdict(self).items() if name.startswith("rx_drop_"))
