"""Flow state of the connections of a kernel behind the NIC.

The peer's offer is taken once, from its SYN or SYN-ACK: for an active open, from the SYN-ACK that acknowledges our SYN;
for a passive open, from the SYN that our SYN-ACK acknowledges. No later segment changes it, so a stray or forged SYN
cannot turn compressed payloads of an open connection into plain ones. SYNs not yet answered wait in a table of bounded
size; one evicted from it is answered without the NIC option.

A kernel has any number of addresses, its SYNs have options that may leave no space for the NIC's, and the NIC is not
told when a connection ends. So a flow is kept until both ends have
sent a FIN, or the kernel a RST, and TIME-WAIT has passed. The table is bounded: flows that the peer never answered are
evicted first, then the ones idle for longest.

What packets need of a flow lies in C (native/nic/tap_flows.h), which finds it, counts, and remembers what was sent.
When a flow begins and ends, and what its peer decodes, is decided here.

A tagged segment without a flow belongs to a connection older than this NIC. The meaning of its bytes is unknown, so
`TapTurn` resets the connection, as one that does not exist (RFC 9293, section 3.5.2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from softnic._native import ffi, lib
from softnic.nic.adaptive_codec import AdaptiveCodec
from softnic.packet.headers import pack_options
from softnic.packet.segment import Flags, Options, Segment

DEFAULT_MSS = 536
"""MSS of a SYN without the option (RFC 9293, section 3.7.1)."""
MIN_MSS = 160
"""Lower bound of the peer's MSS: a frame must hold its headers and one coding block."""
MAX_OFFERS = 4096
MAX_FLOWS = 65536
MAX_UNANSWERED = 4096
TIME_WAIT_S = 60.0
"""Linux's value."""
_MAX_OPTIONS = 40
"""Limit of the bytes of TCP options (RFC 9293, section 3.1)."""
_SPARE = 256
_FIN, _RST = int(Flags.FIN), int(Flags.RST)
_SEQUENCE_MASK = 0xFFFFFFFF


class NicOffer(NamedTuple):
    """The fields of a SYN or SYN-ACK that negotiation uses."""

    seq: int
    mss: int
    codecs: int | None


class _Count:
    """A field of `sn_nic_flow` that C counts."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, flow: TapFlow, owner: type) -> int:
        return int(getattr(flow.c.nic, self._name))


class TapFlow:
    """One connection of the kernel, whose SYN has the number `iss`. Raises MemoryError."""

    __slots__ = ("adaptive", "c", "ended", "iss", "number", "settled")

    wire_bytes_sent = _Count()
    wire_bytes_received = _Count()
    offload_original_bytes_sent = _Count()
    offload_encoded_bytes_sent = _Count()

    def __init__(self, iss: int, number: int) -> None:
        c = lib.sn_tap_flow_new(iss)
        if not c:
            raise MemoryError
        self.c: Any = ffi.gc(c, lib.sn_tap_flow_free)
        """The `sn_tap_flow`."""
        self.adaptive: AdaptiveCodec | None = None
        self.iss = iss
        """Sequence number of our SYN, which tells a new connection from an old one of the same ports."""
        self.number = number
        """A running number, by which `softnic stat` names it."""
        self.settled = False
        """Whether the peer's offer is known."""
        self.ended = 0
        """FINs sent: bit 0 by the kernel, bit 1 by the peer."""
        self.mss = DEFAULT_MSS

    @property
    def codecs(self) -> int | None:
        """Bitmap of the codecs that both ends have; None: plain bytes only."""
        codecs = int(self.c.codecs)
        return None if codecs < 0 else codecs

    @codecs.setter
    def codecs(self, value: int | None) -> None:
        self.c.codecs = -1 if value is None else value

    @property
    def mss(self) -> int:
        """TCP payload and options that the peer accepts in a segment."""
        return int(self.c.mss)

    @mss.setter
    def mss(self, value: int) -> None:
        self.c.mss = value

    @property
    def answered(self) -> bool:
        """Whether the peer has sent anything after our SYN."""
        return bool(self.c.answered)

    @property
    def bytes_sent(self) -> int:
        """Original bytes, retransmissions included."""
        return int(self.c.bytes_sent)

    @property
    def bytes_received(self) -> int:
        return int(self.c.bytes_received)

    @property
    def cached_bytes(self) -> int:
        """Bytes kept for retransmissions."""
        return int(lib.sn_retransmit_cached_bytes(ffi.addressof(self.c, "sent")))

    def settle(self, offer: NicOffer, codecs: int) -> None:
        """Apply the peer's offer to a NIC that has these codecs."""
        self.settled = True
        self.mss = max(offer.mss, MIN_MSS)
        self.codecs = None if offer.codecs is None else offer.codecs & codecs


class TapFlowTable:
    """Flows by (peer, its port, our port, our address) of a NIC that can decode `codecs` (a bitmap)."""

    def __init__(self, codecs: int) -> None:
        self.codecs = codecs
        self.c = ffi.gc(ffi.new("sn_tap_flows *"), lib.sn_tap_flows_clear)
        """The `sn_tap_flows` with the flows."""
        self._flows: dict[tuple[int, ...], TapFlow] = {}
        self._offers: dict[tuple[int, ...], NicOffer] = {}
        self._closed_at: dict[tuple[int, ...], float] = {}
        """When the flows in TIME-WAIT ended, in order."""
        self._last_number = 0
        self._unanswered: dict[tuple[int, ...], TapFlow] = {}

    def find(self, peer: int, peer_port: int, port: int, address: int) -> TapFlow | None:
        return self._flows.get((peer, peer_port, port, address))

    def __len__(self) -> int:
        return len(self._flows)

    def _begin(self, key: tuple[int, ...], segment: Segment) -> TapFlow:
        self._forget(key)
        self._evict()
        flow = TapFlow(segment.seq, self._last_number + 1)
        flow.c.peer, flow.c.peer_port, flow.c.port, flow.c.address = key
        if lib.sn_tap_flows_add(self.c, flow.c):
            raise MemoryError
        self._last_number += 1
        self._flows[key] = self._unanswered[key] = flow
        return flow

    def _evict(self) -> None:
        if len(self._unanswered) >= MAX_UNANSWERED:
            self._forget(next(iter(self._unanswered)))
        if len(self._flows) >= MAX_FLOWS:
            idlest = lib.sn_tap_flows_idlest(self.c)
            self._forget((idlest.peer, idlest.peer_port, idlest.port, idlest.address))

    def _forget(self, key: tuple[int, ...]) -> None:
        flow = self._flows.pop(key, None)
        if flow is not None:
            lib.sn_tap_flows_remove(self.c, flow.c)
        self._unanswered.pop(key, None)
        self._closed_at.pop(key, None)

    def sending_syn(self, segment: Segment, options: Options) -> Options:
        """Return the options to send in a SYN or SYN-ACK: the kernel's and, unless the offer was evicted, the NIC's."""
        key = _sent_by(segment)
        flow = self._flows.get(key)
        if flow is None or flow.iss != segment.seq:
            flow = self._begin(key, segment)
        if segment.flags & Flags.ACK and not flow.settled:
            offer = self._offers.pop(key, None)
            if offer is None or (offer.seq + 1) & _SEQUENCE_MASK != segment.ack:
                return options
            flow.settle(offer, self.codecs)
        return Options(options.mss, options.window_scale, options.sack_permitted, self.codecs)

    def received_syn(self, segment: Segment, options: Options) -> None:
        """Store the offer of a SYN or SYN-ACK."""
        key = segment.src, segment.sport, segment.dport, segment.dst
        offer = NicOffer(segment.seq, DEFAULT_MSS if options.mss is None else options.mss, options.codecs)
        if segment.flags & Flags.ACK:
            flow = self._flows.get(key)
            if flow is not None and not flow.settled and segment.ack == (flow.iss + 1) & _SEQUENCE_MASK:
                flow.settle(offer, self.codecs)
            return
        self._offers.pop(key, None)
        if len(self._offers) >= MAX_OFFERS:
            del self._offers[next(iter(self._offers))]
        self._offers[key] = offer

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
        flow = self._flows[_sent_by(segment)]
        flow.settled, flow.codecs = True, None
        return b""

    def on_received(self, key: tuple[int, ...], flow: TapFlow, flags: int, now: float) -> None:
        """Update a flow for a segment from the peer that is its first, or has a FIN."""
        if not flow.answered:
            flow.c.answered = True
            self._unanswered.pop(key, None)
        if flags & _FIN:
            self._end(key, flow, 2, now)

    def on_sent(self, key: tuple[int, ...], flow: TapFlow, flags: int, now: float) -> None:
        """Update a flow for a segment from the kernel that has a FIN or a RST."""
        if flags & (_FIN | _RST):
            self._end(key, flow, 3 if flags & _RST else 1, now)

    def _end(self, key: tuple[int, ...], flow: TapFlow, who: int, now: float) -> None:
        flow.ended |= who
        if flow.ended == 3:
            self._closed_at.pop(key, None)
            self._closed_at[key] = now

    def sweep(self, now: float) -> None:
        """Remove flows whose TIME-WAIT has passed, once there are enough of them."""
        if len(self._closed_at) <= _SPARE:
            return
        for key in [key for key, at in self._closed_at.items() if now - at >= TIME_WAIT_S]:
            self._forget(key)

    def next_time(self) -> float | None:
        """Return when `sweep` must be called next; None: not before another flow ends."""
        if len(self._closed_at) <= _SPARE:
            return None
        return next(iter(self._closed_at.values())) + TIME_WAIT_S

    def items(self) -> list[tuple[tuple[int, ...], TapFlow]]:
        """Return the connections that have not ended, the oldest first."""
        alive = [(key, flow) for key, flow in self._flows.items() if flow.ended != 3]
        return sorted(alive, key=lambda item: item[1].number)


def _sent_by(segment: Segment) -> tuple[int, ...]:
    """Return the key of a segment of the kernel."""
    return segment.dst, segment.dport, segment.sport, segment.src
