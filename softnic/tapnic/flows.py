"""Flow state of the connections of a kernel behind the NIC.

Negotiation is that of `Flows`. The differences: a kernel has any number of addresses, its SYNs have options that may
leave no space for the NIC's, and the NIC is not told when a connection ends. So a flow is kept until both ends have
sent a FIN, or the kernel a RST, and TIME-WAIT has passed. The table is bounded: flows that the peer never answered are
evicted first, then the ones idle for longest.

A tagged segment without a flow belongs to a connection older than this NIC. The meaning of its bytes is unknown, so
`TapNic` resets the connection, as one that does not exist (RFC 9293, section 3.5.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from softnic.nic.flows import Flow, Flows
from softnic.packet.headers import pack_options
from softnic.packet.segment import Flags, Options, Segment
from softnic.tapnic.retransmit_cache import RetransmitCache

MAX_FLOWS = 65536
MAX_UNANSWERED = 4096
TIME_WAIT_S = 60.0
"""Linux's value."""
_MAX_OPTIONS = 40
"""Limit of the bytes of TCP options (RFC 9293, section 3.1)."""
_SPARE = 256
_FIN, _RST = int(Flags.FIN), int(Flags.RST)


@dataclass(slots=True)
class TapFlow(Flow):
    """One connection of the kernel."""

    number: int = 0
    """A running number, by which `softnic stat` names it."""
    sent: RetransmitCache = field(default_factory=lambda: RetransmitCache(0))
    answered: bool = False
    """Whether the peer has sent anything after our SYN."""
    ended: int = 0
    """FINs sent: bit 0 by the kernel, bit 1 by the peer."""
    seen_at: float = 0.0
    """When the kernel last sent a segment."""
    bytes_sent: int = 0
    bytes_received: int = 0
    """Original bytes, retransmissions included."""


class TapFlowTable(Flows):
    """Flows by (peer, its port, our port, our address)."""

    def __init__(self, codecs: int) -> None:
        super().__init__(codecs)
        self._closed_at: dict[tuple[int, ...], float] = {}
        """When the flows in TIME-WAIT ended."""
        self._last_number = 0
        self._unanswered: dict[tuple[int, ...], TapFlow] = {}

    def find(self, peer: int, peer_port: int, port: int, address: int) -> TapFlow | None:
        flow = self._flows.get((peer, peer_port, port, address))
        assert flow is None or isinstance(flow, TapFlow)
        return flow

    def _sent_by(self, segment: Segment) -> tuple[int, ...]:
        return segment.dst, segment.dport, segment.sport, segment.src

    def _sent_to(self, segment: Segment) -> tuple[int, ...]:
        return segment.src, segment.sport, segment.dport, segment.dst

    def _begin(self, key: tuple[int, ...], segment: Segment) -> TapFlow:
        self._closed_at.pop(key, None)
        self._evict()
        self._last_number += 1
        flow = self._unanswered[key] = TapFlow(segment.seq, number=self._last_number, sent=RetransmitCache(segment.seq))
        return flow

    def _evict(self) -> None:
        if len(self._unanswered) >= MAX_UNANSWERED:
            self._forget(next(iter(self._unanswered)))
        if len(self._flows) >= MAX_FLOWS:
            self._forget(min(self._flows, key=lambda key: self._seen_at(key)))

    def _seen_at(self, key: tuple[int, ...]) -> float:
        flow = self._flows[key]
        assert isinstance(flow, TapFlow)
        return flow.seen_at

    def _forget(self, key: tuple[int, ...]) -> None:
        self._flows.pop(key, None)
        self._unanswered.pop(key, None)
        self._closed_at.pop(key, None)

    def syn_option(self, segment: Segment, options: Options, options_bytes: int) -> bytes:
        """Return the option to add to a SYN or SYN-ACK of the kernel.

        Empty if it does not fit: then neither end may assume that the other decodes.
        """
        announced = self.sending_syn(segment, options).codecs
        if announced is None:
            return b""
        option = pack_options(Options(codecs=announced), None)
        if options_bytes + len(option) <= _MAX_OPTIONS and not segment.payload:
            return option
        flow = self._flows[self._sent_by(segment)]
        flow.settled, flow.codecs = True, None
        return b""

    def on_received(self, key: tuple[int, ...], flow: TapFlow, ack: int, flags: int, now: float) -> None:
        """Update a flow for a segment from the peer."""
        flow.sent.on_ack(ack)
        if not flow.answered:
            flow.answered = True
            self._unanswered.pop(key, None)
        if flags & _FIN:
            self._end(key, flow, 2, now)

    def on_sent(self, key: tuple[int, ...], flow: TapFlow, flags: int, now: float) -> None:
        """Update a flow for a segment from the kernel."""
        flow.seen_at = now
        if flags & (_FIN | _RST):
            self._end(key, flow, 3 if flags & _RST else 1, now)

    def _end(self, key: tuple[int, ...], flow: TapFlow, who: int, now: float) -> None:
        flow.ended |= who
        if flow.ended == 3:
            self._closed_at[key] = now

    def sweep(self, now: float) -> None:
        """Remove flows whose TIME-WAIT has passed, once there are enough of them."""
        if len(self._closed_at) <= _SPARE:
            return
        for key in [key for key, at in self._closed_at.items() if now - at > TIME_WAIT_S]:
            self._forget(key)

    def items(self) -> list[tuple[tuple[int, ...], TapFlow]]:
        """Return the connections that have not ended, the oldest first."""
        alive = [(key, flow) for key, flow in self._flows.items() if isinstance(flow, TapFlow) and flow.ended != 3]
        return sorted(alive, key=lambda item: item[1].number)
