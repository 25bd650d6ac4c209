"""Flow state of the NIC: for each TCP connection, whether both ends agreed to compress, and with which codecs.

The peer's offer is taken once, from its SYN or SYN-ACK: for an active open, from the SYN-ACK that acknowledges our SYN;
for a passive open, from the SYN that our SYN-ACK acknowledges. No later segment changes it, so a stray or forged SYN
cannot turn compressed payloads of an open connection into plain ones. A flow exists only once the local TCP has sent a
SYN or SYN-ACK for it. SYNs not yet answered wait in a table of bounded size; one evicted from it is answered without
the NIC option.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from softnic.nic.adaptive_codec import AdaptiveCodec
from softnic.packet.headers import HEADER_BYTES
from softnic.packet.segment import Flags, Options, Segment

DEFAULT_MSS = 536
"""MSS of a SYN without the option (RFC 9293, section 3.7.1)."""
MIN_MSS = 160
"""Lower bound of the peer's MSS: a frame must hold its headers and one coding block."""
MAX_OFFERS = 4096

_SEQUENCE_MASK = 0xFFFFFFFF
_SPARE_FLOWS = 256


class Key(NamedTuple):
    """A connection as seen from this end. The local address is the NIC's only one."""

    peer: int
    peer_port: int
    port: int


class NicOffer(NamedTuple):
    """The fields of a SYN or SYN-ACK that negotiation uses."""

    seq: int
    mss: int
    codecs: int | None


@dataclass(slots=True)
class Flow:
    """One connection."""

    iss: int
    """Sequence number of our SYN, which tells a new connection from an old one of the same ports."""
    settled: bool = False
    """Whether the peer's offer is known."""
    codecs: int | None = None
    """Bitmap of the codecs that both ends have; None: plain bytes only."""
    mss: int = DEFAULT_MSS
    """TCP payload and options that the peer accepts in a segment."""

    adaptive: AdaptiveCodec | None = None
    """State of the latest tag's codec, if the NIC may leave it out."""
    wire_bytes_sent: int = 0
    wire_bytes_received: int = 0
    offload_original_bytes_sent: int = 0
    offload_encoded_bytes_sent: int = 0
    offload_original_bytes_received: int = 0
    offload_encoded_bytes_received: int = 0

    def settle(self, offer: NicOffer, codecs: int) -> None:
        self.settled = True
        self.mss = max(offer.mss, MIN_MSS)
        self.codecs = None if offer.codecs is None else offer.codecs & codecs


class Flows:
    """The flows of one NIC that can decode `codecs` (a bitmap)."""

    def __init__(self, codecs: int) -> None:
        self.codecs = codecs
        self._flows: dict[tuple[int, ...], Flow] = {}
        self._offers: dict[tuple[int, ...], NicOffer] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def get(self, key: tuple[int, ...]) -> Flow | None:
        """Return the flow of a `Key`, or of its three numbers."""
        return self._flows.get(key)

    def _sent_by(self, segment: Segment) -> tuple[int, ...]:
        """Return the key of a segment of this end."""
        return Key(segment.dst, segment.dport, segment.sport)

    def _sent_to(self, segment: Segment) -> tuple[int, ...]:
        """Return the key of a segment of the peer."""
        return Key(segment.src, segment.sport, segment.dport)

    def _begin(self, key: tuple[int, ...], segment: Segment) -> Flow:  # noqa: ARG002
        """Return the flow of a connection whose SYN or SYN-ACK this end sends now."""
        return Flow(segment.seq)

    def sending_syn(self, segment: Segment, options: Options) -> Options:
        """Return the options to send in a SYN or SYN-ACK: those of TCP and, unless the peer cannot use it, the NIC's
        own."""
        key = self._sent_by(segment)
        if not options.remembered:
            self._offers.pop(key, None)
            self._flows.pop(key, None)
            return options
        flow = self._flows.get(key)
        if flow is None or flow.iss != segment.seq:
            flow = self._flows[key] = self._begin(key, segment)
        if segment.flags & Flags.ACK and not flow.settled:
            offer = self._offers.pop(key, None)
            if offer is None or (offer.seq + 1) & _SEQUENCE_MASK != segment.ack:
                return options
            flow.settle(offer, self.codecs)
        return Options(options.mss, options.window_scale, options.sack_permitted, self.codecs)

    def received_syn(self, segment: Segment, options: Options) -> None:
        """Store the offer of a SYN or SYN-ACK."""
        key = self._sent_to(segment)
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

    def retain(self, alive: Collection[tuple[int, ...]]) -> None:
        """Remove flows whose connection TCP has removed, once there are enough of them."""
        if len(self._flows) > 2 * len(alive) + _SPARE_FLOWS:
            for key in [key for key in self._flows if key not in alive]:
                del self._flows[key]


def flow_max_payload(flow: Flow | None, mtu_bytes: int, header_bytes: int) -> int:
    """Return the TCP payload bytes that a frame of this flow may carry behind a header of this size."""
    limit = mtu_bytes - 40
    if flow is not None and flow.mss < limit:
        limit = flow.mss
    return limit - (header_bytes - HEADER_BYTES)
