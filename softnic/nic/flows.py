"""What the NIC remembers of each TCP connection: whether both ends agreed to compress, and with what.

Rules. The peer's offer is what its SYN or SYN-ACK said, taken once: where we called, from the SYN-ACK that
acknowledges our SYN; where we were called, from the SYN that our SYN-ACK acknowledges. Nothing that arrives later
changes it, so that no stray or forged SYN loopback compressed payloads into plain ones under a living connection. A
flow exists only once the local TCP has sent a SYN or SYN-ACK for it; SYNs not yet answered wait in a table of bounded
size, and one that fell out of it is answered without the NIC option.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from softnic.nic.adaptive_codec import AdaptiveCodec
from softnic.packet.headers import HEADER_BYTES
from softnic.packet.segment import Flags, Options, Segment

DEFAULT_MSS = 536
"""Where a SYN has no MSS option (RFC 9293, section 3.7.1)."""
MIN_MSS = 160
"""A smaller one is taken for this: a frame must hold its headers and one stretch of a tagged range."""
MAX_OFFERS = 4096

_SEQUENCE_MASK = 0xFFFFFFFF
_SPARE_FLOWS = 256


class Key(NamedTuple):
    """A connection as seen from this end. The local address is the NIC's only one."""

    peer: int
    peer_port: int
    port: int


class NicOffer(NamedTuple):
    """What a SYN or SYN-ACK said."""

    seq: int
    mss: int
    codecs: int | None


@dataclass(slots=True)
class Flow:
    """One connection."""

    iss: int
    """Sequence number of our SYN: it tells a new connection from an old one of the same ports."""
    settled: bool = False
    """The peer's offer is known."""
    codecs: int | None = None
    """Bitmap of the codecs both ends have; None: plain bytes only."""
    mss: int = DEFAULT_MSS
    """TCP payload and options that the peer takes in a segment."""

    adaptive: AdaptiveCodec | None = None
    """Of the tag last sent under, where its codec is one that the NIC may leave out."""
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
    """The connections of one NIC that can decode `codecs` (a bitmap)."""

    def __init__(self, codecs: int) -> None:
        self.codecs = codecs
        self._flows: dict[tuple[int, ...], Flow] = {}
        self._offers: dict[tuple[int, ...], NicOffer] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def get(self, key: tuple[int, ...]) -> Flow | None:
        """The flow of a `Key`, or of its three numbers."""
        return self._flows.get(key)

    def _sent_by(self, segment: Segment) -> tuple[int, ...]:
        """The key of a segment of this end."""
        return Key(segment.dst, segment.dport, segment.sport)

    def _sent_to(self, segment: Segment) -> tuple[int, ...]:
        """And of one of the peer's."""
        return Key(segment.src, segment.sport, segment.dport)

    def _begin(self, key: tuple[int, ...], segment: Segment) -> Flow:  # noqa: ARG002
        """The flow of a connection whose SYN or SYN-ACK this end sends now."""
        return Flow(segment.seq)

    def sending_syn(self, segment: Segment, options: Options) -> Options:
        """The options to send in a SYN or SYN-ACK: those of TCP and, as a rule, the NIC's own."""
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
        """Takes note of what a SYN or SYN-ACK offers."""
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
        """Forgets connections that TCP has forgotten. Cheap when called often: it waits until it is worth it."""
        if len(self._flows) > 2 * len(alive) + _SPARE_FLOWS:
            for key in [key for key in self._flows if key not in alive]:
                del self._flows[key]


def flow_max_payload(flow: Flow | None, mtu_bytes: int, header_bytes: int) -> int:
    """TCP payload bytes that a frame of this flow may carry behind headers of this size."""
    limit = mtu_bytes - 40
    if flow is not None and flow.mss < limit:
        limit = flow.mss
    return limit - (header_bytes - HEADER_BYTES)
