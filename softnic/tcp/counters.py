"""Counters of the stack. Every drop increments exactly one of the `dropped_` fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StackCounters:
    segments_received: int = 0
    segments_sent: int = 0
    """Super-segments count as one."""
    fast_path_received: int = 0
    fast_path_sent: int = 0
    """Of them, those that the fast path processed (fast_path.py)."""
    resets_sent: int = 0
    resets_received: int = 0
    connections_opened: int = 0
    connections_accepted: int = 0
    connections_failed: int = 0
    """Ended by an error, refused and timed-out ones included."""
    retransmission_timeouts: int = 0
    fast_retransmits: int = 0
    """Recoveries that began without a timeout."""
    tail_loss_probes: int = 0
    spurious_retransmits: int = 0
    """Needless recoveries, timeouts included, that were undone."""
    challenge_acks: int = 0
    out_of_order: int = 0
    """Segments kept for reassembly."""
    out_of_order_pruned: int = 0
    """Those of them dropped later, to free memory or because the gap before them was not filled."""
    icmp_errors: int = 0
    """Errors about a segment in flight (RFC 5927)."""
    icmp_sent: int = 0
    """Errors about packets without a receiver."""
    path_mtus_lowered: int = 0
    cookies_sent: int = 0
    """SYN-ACKs sent without state: too many connections were half open."""
    cookies_accepted: int = 0
    dropped_not_ours: int = 0
    """Another destination address, or a source address that no host can have (RFC 1122, section 3.2.1.3)."""
    dropped_no_connection: int = 0
    dropped_backlog: int = 0
    """SYNs to a listener whose backlog was full."""
    dropped_paws: int = 0
    dropped_sequence: int = 0
    """Outside the receive window, or a duplicate."""
    dropped_ack: int = 0
    """Without ACK, or with one out of range."""
    dropped_reset: int = 0
    """RST or SYN that an attacker could have guessed (RFC 5961)."""
    dropped_flags: int = 0
    """Control bits invalid in the connection's state."""
    dropped_reassembly: int = 0
    """The reassembly queue was full, or the budget exhausted."""
    dropped_unresolved: int = 0
    """ARP failed, or too many packets waited for it."""
    dropped_ethernet: int = 0
    """Frames for another MAC address or of an unknown type."""
    dropped_malformed: int = 0
    """ARP, IPv4 or ICMP that does not parse."""
    dropped_protocol: int = 0
    """IPv4 packets that are neither TCP nor ICMP, and unexpected echo replies."""
    dropped_icmp: int = 0
    """ICMP errors about no segment in flight, or of no relevance."""

    def prune_out_of_order(self, segments: int) -> None:
        """Counts out-of-order segments that are dropped."""
        self.out_of_order_pruned += segments
