"""The paper's alpha and beta of this NIC, and the share of acknowledgements, by counting the bytes of frames.

The NIC itself cuts floats into frames; no formula of the frame formats stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from softnic.link.null import NullLink
from softnic.nic.flows import DetachedFlow
from softnic.nic.nic import Nic
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.segment import Flags, Segment
from softnic.sim.node import FIRST_IP, TOS
from softnic.sim.processes import Floats
from softnic.tcp.config import TcpConfig

MTU = 1500
_OWN_IP, _PEER_IP = FIRST_IP, FIRST_IP + 1
_ALL_CODECS = 0xFFFF
_TIMESTAMPS = (1, 1)


@dataclass(frozen=True, slots=True)
class Framed:
    """Bytes of gradients, of their encoding, and of the frames that carry it."""

    original: int
    encoded: int
    """Including payload headers (FORMAT.md), which compression adds."""
    ethernet: int
    """Counted as a link's rate counts them: no preamble, FCS or gap."""

    @property
    def alpha(self) -> float:
        """The fraction of a link that is not headers."""
        return self.encoded / self.ethernet

    @property
    def beta(self) -> float:
        """The compression ratio."""
        return self.original / self.encoded


def framed(floats: Floats, codec: str = "", mtu: int = MTU) -> Framed:
    """Let the NIC cut floats into frames, in super-segments as TCP passes them on. Without a codec: uncompressed."""
    link = _Counter(mtu)
    nic = Nic(link, mac_of(_OWN_IP), _OWN_IP, {TOS: codec or "raw"})
    flow = DetachedFlow(_ALL_CODECS)
    raw = np.ascontiguousarray(floats).view(np.uint8).data
    most = TcpConfig().super_segment
    start = 0
    while start < len(raw):
        tos = TOS if codec else 0
        segment = Segment(
            _OWN_IP,
            _PEER_IP,
            1,
            2,
            1 + start,
            1,
            int(Flags.ACK),
            1000,
            tos,
            _TIMESTAMPS,
            None,
            raw[start : start + most],
            flow,
        )
        start += nic.transmit(segment, mac_of(_PEER_IP), 1 << 16, 0.0).consumed
    return Framed(len(raw), link.ethernet - link.frames * headers(), link.ethernet)


def ring_ratio(N: int, ratio_of: Callable[[int], float]) -> float:
    """Return the compression ratio of all that a rank sends in a ring all-reduce.

    Parameters
    ----------
    ratio_of : Callable[[int], float]
        The ratio of sums of k ranks' gradients. A ring sends one such sum for each k below N, then N - 1 whole sums.

    Notes
    -----
    Sums are larger than their terms, and codecs with an absolute bound compress them less. The ratio of the paper's
    block floating point does not depend on the values.
    """
    if N == 1:
        return ratio_of(1)
    taken = sum(1 / ratio_of(k) for k in range(1, N)) + (N - 1) / ratio_of(N)
    return 2 * (N - 1) / taken


def headers() -> int:
    """Return the bytes of headers in a frame: Ethernet, IPv4, and TCP with timestamps."""
    return 14 + 20 + 32


def acknowledgements(rate_bps: float, batch_s: float, mtu: int = MTU) -> float:
    """Return the bytes of acknowledgements for each byte of frames.

    A receiver acknowledges each batch of frames once, and a busy link delivers a batch, of at least one frame, every
    `batch_s`.
    """
    return headers() / max(rate_bps / 8 * batch_s, mtu + 14)


class _Counter(NullLink):
    """Counts frames and their bytes."""

    def __init__(self, mtu: int) -> None:
        super().__init__(mtu)
        self.ethernet = 0
        self.frames = 0

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        self.ethernet += frames.nbytes
        self.frames += len(frames)
