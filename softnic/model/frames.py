"""What frames make of gradients: the paper's alpha and beta of this NIC, and what acknowledgements take of a link.

Nothing here is a formula of the frame formats: the NIC itself cuts floats into frames, and the bytes are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic.link.null import NullLink
from softnic.nic.nic import Nic
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.segment import Flags, Options, Segment
from softnic.tcp.config import TcpConfig

Floats = npt.NDArray[np.float32]

MTU = 1500
_TOS = 0x28
_OURS, _THEIRS = 0x0A4D0001, 0x0A4D0002
_ALL_CODECS = 0xFFFF
_STAMP = (1, 1)


@dataclass(frozen=True, slots=True)
class Framed:
    """Bytes of gradients, of what they were encoded to, and of the frames that carry it."""

    original: int
    encoded: int
    """With the headers of payloads (FORMAT.md), which come with compression."""
    ethernet: int
    """As a link's rate counts them: no preamble, FCS or gap."""

    @property
    def alpha(self) -> float:
        """The share of a link that is not headers."""
        return self.encoded / self.ethernet

    @property
    def beta(self) -> float:
        """The compression ratio."""
        return self.original / self.encoded


def framed(floats: Floats, codec: str = "", mtu: int = MTU) -> Framed:
    """What the NIC makes of floats, in super-segments as TCP hands them down. Without a codec, as they are."""
    link = _Counter(mtu)
    nic = Nic(link, mac_of(_OURS), _OURS, {_TOS: codec or "raw"})
    # Codecs are used only with a peer that has said in its SYN that it knows them.
    syn = Segment(_OURS, _THEIRS, 1, 2, 0, flags=int(Flags.SYN), options=Options(mss=mtu - 40))
    nic.transmit(syn, mac_of(_THEIRS), 1, 0.0)
    answer = Segment(_THEIRS, _OURS, 2, 1, 0, 1, flags=int(Flags.SYN | Flags.ACK))
    nic.flows.received_syn(answer, Options(mss=mtu - 40, codecs=_ALL_CODECS))
    link.ethernet = link.frames = 0
    raw = np.ascontiguousarray(floats).view(np.uint8).data
    most = TcpConfig().super_segment
    start = 0
    while start < len(raw):
        tos = _TOS if codec else 0
        segment = Segment(
            _OURS, _THEIRS, 1, 2, 1 + start, 1, int(Flags.ACK), 1000, tos, _STAMP, None, raw[start : start + most]
        )
        start += nic.transmit(segment, mac_of(_THEIRS), 1 << 16, 0.0).consumed
    return Framed(len(raw), link.ethernet - link.frames * headers(), link.ethernet)


def ring_ratio(N: int, ratio_of: Callable[[int], float]) -> float:
    """Compression ratio of all that a rank sends in a ring all-reduce, where `ratio_of(k)` is that of sums of k ranks'
    gradients: one step for each k below N, then N - 1 steps of whole sums.

    Sums are larger than what they are of, and codecs with a bound of their own compress them less; the paper's block
    floating point does not mind.
    """
    if N == 1:
        return ratio_of(1)
    taken = sum(1 / ratio_of(k) for k in range(1, N)) + (N - 1) / ratio_of(N)
    return 2 * (N - 1) / taken


def headers() -> int:
    """Ethernet, IPv4, and TCP with timestamps."""
    return 14 + 20 + 32


def acknowledgements(rate_bps: float, batch_s: float, mtu: int = MTU) -> float:
    """Bytes of acknowledgements for each byte of frames, on the way back: a receiver acknowledges each batch of frames
    that arrives at once, and a link that is busy delivers one every `batch_s`, of a frame at least."""
    return headers() / max(rate_bps / 8 * batch_s, mtu + 14)


class _Counter(NullLink):
    """Counts what is sent."""

    def __init__(self, mtu: int) -> None:
        super().__init__(mtu)
        self.ethernet = 0
        self.frames = 0

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        self.ethernet += frames.nbytes
        self.frames += len(frames)
