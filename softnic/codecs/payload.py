"""The payload of a tagged segment: the header of FORMAT.md and the encoded bytes behind it.

This parser serves captures, reports and tests; the NIC parses its frames in C by the same rules. A payload is either
rejected as a whole, with the reason, or gives exactly the original bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from softnic._native import ffi, lib
from softnic.codecs.registry import Bytes, Codec, CodecError, DecodeError, from_number

VERSION = 1
_FIELDS = struct.Struct("!BBbBII")
HEADER_BYTES: int = lib.SN_PAYLOAD_HEADER
_RAW: int = lib.SN_FLAG_RAW
_PADDED: int = lib.SN_FLAG_PADDED


def _view(data: Bytes) -> memoryview:
    return (data.data if isinstance(data, np.ndarray) else memoryview(data)).cast("B")


class TagCounts(NamedTuple):
    """Numbers of words with vectors of 0, 8, 16 and 32 bits: a row of Table III in Li et al. (MICRO 2018)."""

    none: int = 0
    bits_8: int = 0
    bits_16: int = 0
    bits_32: int = 0

    def __add__(self, other: object) -> TagCounts:
        """Add elementwise (a tuple's own `+` concatenates)."""
        if not isinstance(other, TagCounts):
            return NotImplemented
        return TagCounts(*(mine + yours for mine, yours in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class PayloadHeader:
    """A payload header with consistent fields. Raises DecodeError otherwise."""

    codec: Codec
    original: int
    """Bytes before encoding."""
    encoded: int
    """Bytes of the body, tail included."""
    raw: bool = False
    """Whether the body is the original bytes."""
    padded: bool = False
    """Whether bytes to be ignored follow the body."""

    def __post_init__(self) -> None:
        if not (0 < self.original < 1 << 32 and 0 <= self.encoded < 1 << 32):
            raise DecodeError(f"lengths {self.original} and {self.encoded} are not of 32 bits and a non-empty segment")
        if self.codec.number == lib.SN_RAW and not self.raw:
            raise DecodeError("codec raw without the RAW flag")
        if self.raw and self.encoded != self.original:
            raise DecodeError(f"a RAW body of {self.encoded} bytes cannot stand for {self.original}")
        body = self.encoded - self.tail
        if not self.raw and body < self.codec.least(self.words):
            raise DecodeError(f"{body} bytes of {self.codec} cannot stand for {self.words} words")

    @property
    def words(self) -> int:
        """32-bit words of the original."""
        return self.original // 4

    @property
    def tail(self) -> int:
        """Original bytes, 0 to 3, behind the last whole word, which are sent unchanged."""
        return self.original % 4

    def pack(self) -> bytes:
        flags = (_RAW if self.raw else 0) | (_PADDED if self.padded else 0)
        codec = self.codec
        return _FIELDS.pack(VERSION << 4 | flags, codec.number, codec.parameter, self.tail, self.original, self.encoded)

    @classmethod
    def unpack(cls, payload: Bytes) -> PayloadHeader:
        """Parse the header at the start of a payload, without regard to what follows. Raises DecodeError."""
        view = _view(payload)
        if view.nbytes < HEADER_BYTES:
            raise DecodeError(f"{view.nbytes} bytes are not enough for a payload header of {HEADER_BYTES}")
        first, number, parameter, tail, original, encoded = _FIELDS.unpack_from(view)
        if first >> 4 != VERSION:
            raise DecodeError(f"payload header of version {first >> 4}, not {VERSION}")
        flags = first & 0xF
        if flags & ~(_RAW | _PADDED):
            raise DecodeError(f"unknown flags {flags:#x} in a payload header")
        if tail != original % 4:
            raise DecodeError(f"a tail of {tail} bytes does not fit an original length of {original}")
        try:
            codec = from_number(number, parameter)
        except CodecError as error:
            raise DecodeError(str(error)) from error
        return cls(codec, original, encoded, bool(flags & _RAW), bool(flags & _PADDED))


class Payload(NamedTuple):
    """A payload split into header, body (as codec and RAW flag say) and tail (original bytes)."""

    header: PayloadHeader
    body: memoryview
    tail: memoryview

    @classmethod
    def split(cls, payload: Bytes) -> Payload:
        """Split a payload without decoding it. Raises DecodeError if header and length contradict each other."""
        header = PayloadHeader.unpack(payload)
        view = _view(payload)
        end = HEADER_BYTES + header.encoded
        if view.nbytes < end or (view.nbytes > end) != header.padded:
            more = " and padding" if header.padded else ""
            raise DecodeError(f"a payload of {view.nbytes} bytes whose header says {end}{more}")
        words_end = end - header.tail
        return cls(header, view[HEADER_BYTES:words_end], view[words_end:end])

    def decode(self) -> bytes:
        """Return the original bytes. Raises DecodeError."""
        if self.header.raw:
            return self.body.tobytes() + self.tail.tobytes()
        return self.header.codec.decode(self.body, self.header.words).tobytes() + self.tail.tobytes()

    def tag_counts(self) -> TagCounts:
        """Count vectors by size; all words of a RAW body count as 32 bits. Raises DecodeError."""
        if self.header.raw:
            return TagCounts(bits_32=self.header.words)
        return tag_counts(self.header.codec, self.body, self.header.words)


def decode_payload(payload: Bytes) -> bytes:
    """Return the original bytes of a tagged segment's payload. Raises DecodeError."""
    return Payload.split(payload).decode()


def tag_counts(codec: Codec, body: Bytes, count: int) -> TagCounts:
    """Count the vectors of a body of `count` words by size.

    Raises DecodeError if the body is malformed or the codec has no vectors (`Codec.has_tags`).
    """
    view = ffi.from_buffer("uint8_t[]", body)
    counts = np.zeros(4, np.uint64)
    known = 0 <= count < 1 << 60
    if not known or lib.sn_tag_counts(
        codec.number, codec.parameter, view, len(view), count, ffi.from_buffer("uint64_t[]", counts)
    ):
        raise DecodeError(f"{len(view)} bytes are not a {codec} encoding of {count} words")
    return TagCounts(*counts.tolist())
