"""The payload header of FORMAT.md as a scapy layer.

    from softnic.capture import scapy_layer
    scapy_layer.bind()
    for packet in scapy.all.rdpcap("job.pcapng"):
        if scapy_layer.SoftnicPayload in packet:
            print(packet[scapy_layer.SoftnicPayload].floats())

Nothing is bound on import: whether a TCP payload starts with this header is up to its IPv4 ToS, which scapy's
bindings do not see, so `bind` says which ToS and, where wanted, which ports. Importing this module imports scapy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scapy.config import conf
from scapy.fields import BitField, ByteEnumField, ByteField, FlagsField, IntField, SignedByteField
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet, bind_bottom_up, split_bottom_up

from softnic.codecs import BUILT_IN, Codec, DecodeError, get, names
from softnic.codecs.payload import HEADER_BYTES, VERSION, Payload, PayloadHeader

Floats = npt.NDArray[np.float32]

_offloads: set[int] = set()


class SoftnicPayload(Packet):
    """A payload header. Its payload is the encoded body with the tail; padding follows as a Padding layer."""

    name = "softnic payload"
    fields_desc = [  # noqa: RUF012 - scapy's way to declare a layer
        BitField("version", VERSION, 4),
        FlagsField("flags", 0, 4, ["RAW", "PADDED"]),
        ByteEnumField("codec", 0, dict(zip([n for n in range(16) if BUILT_IN >> n & 1], names(), strict=True))),
        SignedByteField("parameter", 0),
        ByteField("tail", 0),
        IntField("original_length", 0),
        IntField("encoded_length", 0),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **options: Any) -> type[Packet]:
        """Return this layer, or Raw below a TCP header whose packet has no valid payload header."""
        below = options.get("_underlayer")
        if _pkt is None or not isinstance(below, TCP):
            return cls
        ip = below.underlayer
        if not isinstance(ip, IP) or ip.tos & 0xFC not in _offloads:
            return conf.raw_layer
        try:
            Payload.split(_pkt)
        except DecodeError:
            return conf.raw_layer
        return cls

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return s[: self.encoded_length], s[self.encoded_length :]

    def restore(self) -> bytes:
        """Return the original bytes. Raises DecodeError."""
        return Payload.split(bytes(self)).decode()

    def floats(self) -> Floats:
        """Return the original floats, without up to three tail bytes. Raises DecodeError."""
        original = self.restore()
        return np.frombuffer(original, dtype="<f4", count=len(original) // 4)


def encode(floats: Floats, codec: Codec | str) -> Packet:
    """Return the payload of these floats, header and body, to put behind a TCP layer."""
    chosen = get(codec) if isinstance(codec, str) else codec
    body = chosen.encode(floats)
    header = PayloadHeader(chosen, original=floats.nbytes, encoded=len(body), raw=chosen.name == "raw")
    return SoftnicPayload(header.pack()[:HEADER_BYTES] + body)


def bind(*ports: int, offloads: tuple[int, ...] = (0x28,)) -> None:
    """Let scapy find the layer in TCP packets with these ToS: of these ports, or of all that nothing else claims.

    A header that contradicts its packet stays Raw, and so do the tagged but unencoded floats of a host side.
    """
    unbind()
    _offloads.update(tos & 0xFC for tos in offloads)
    for port in ports:
        bind_bottom_up(TCP, SoftnicPayload, dport=port)
        bind_bottom_up(TCP, SoftnicPayload, sport=port)
    if not ports:
        bind_bottom_up(TCP, SoftnicPayload)


def unbind() -> None:
    """Remove all bindings."""
    _offloads.clear()
    split_bottom_up(TCP, SoftnicPayload)
