"""The payload of a tagged segment: FORMAT.md's header, and the bytes it stands for.

This is the slow, careful way to read one payload, for captures, reports and tests; the NIC reads its frames in C
by the same rules. A payload is rejected whole, with the reason, or gives exactly the original bytes.
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
    """How many words became vectors of 0, 8, 16 and 32 bits: a row of Li et al.'s Table III."""

    none: int = 0
    bits_8: int = 0
    bits_16: int = 0
    bits_32: int = 0

    def __add__(self, other: object) -> TagCounts:
        """Sums lane counts; a tuple's own `+` would join them."""
        if not isinstance(other, TagCounts):
            return NotImplemented
        return TagCounts(*(mine + yours for mine, yours in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class PayloadHeader:
    """One header, its fields consistent with each other. Raises DecodeError otherwise."""

    codec: Codec
    original: int
    """Bytes that the payload stands for."""
    encoded: int
    """Bytes of the body, tail included."""
    raw: bool = False
    """The body is the original bytes."""
    padded: bool = False
    """Bytes to be ignored follow the body."""

    def __post_init__(self) -> None:
        if not (0 < self.original < 1 << 32 and 0 <= self.encoded < 1 << 32):
            raise DecodeError(f"lengths {self.original} and {self.encoded} are none of 32 bits and a non-empty segment")
        if self.codec.number == lib.SN_RAW and not self.raw:
            raise DecodeError("codec raw without the RAW flag")
        if self.raw and self.encoded != self.original:
            raise DecodeError(f"a RAW body of {self.encoded} bytes cannot stand for {self.original}")
        body = self.encoded - self.tail
        if not self.raw and body < self.codec.least(self.words):
            raise DecodeError(f"{body} bytes of {self.codec} cannot stand for {self.words} words")

    @property
    def words(self) -> int:
        """32-bit words that the payload stands for."""
        return self.original // 4

    @property
    def tail(self) -> int:
        """Original bytes, 0..3, that follow the words as they were."""
        return self.original % 4

    def pack(self) -> bytes:
        flags = (_RAW if self.raw else 0) | (_PADDED if self.padded else 0)
        codec = self.codec
        return _FIELDS.pack(VERSION << 4 | flags, codec.number, codec.parameter, self.tail, self.original, self.encoded)

    @classmethod
    def unpack(cls, payload: Bytes) -> PayloadHeader:
        """The header that a payload opens with. Looks at nothing behind it. Raises DecodeError."""
        view = _view(payload)
        if view.nbytes < HEADER_BYTES:
            raise DecodeError(f"{view.nbytes} bytes are too few for a payload header of {HEADER_BYTES}")
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
    """A payload taken apart: the body is what codec and RAW flag say, the tail are original bytes."""

    header: PayloadHeader
    body: memoryview
    tail: memoryview

    @classmethod
    def split(cls, payload: Bytes) -> Payload:
        """Raises DecodeError where header and length disagree. The body is not decoded yet."""
        header = PayloadHeader.unpack(payload)
        view = _view(payload)
        end = HEADER_BYTES + header.encoded
        if view.nbytes < end or (view.nbytes > end) != header.padded:
            more = " and padding" if header.padded else ""
            raise DecodeError(f"a payload of {view.nbytes} bytes whose header says {end}{more}")
        words_end = end - header.tail
        return cls(header, view[HEADER_BYTES:words_end], view[words_end:end])

    def restore(self) -> bytes:
        """The original bytes as TCP gets them. Raises DecodeError."""
        if self.header.raw:
            return self.body.tobytes() + self.tail.tobytes()
        return self.header.codec.decode(self.body, self.header.words).tobytes() + self.tail.tobytes()

    def tag_counts(self) -> TagCounts:
        """Vectors by size; the words of a RAW body all count as 32 bits. Raises DecodeError."""
        if self.header.raw:
            return TagCounts(bits_32=self.header.words)
        return tag_counts(self.header.codec, self.body, self.header.words)


def restore(payload: Bytes) -> bytes:
    """The original bytes that the payload of a tagged segment stands for. Raises DecodeError."""
    return Payload.split(payload).restore()


def tag_counts(codec: Codec, body: Bytes, count: int) -> TagCounts:
    """Vectors by size of a body that stands for `count` words. Raises DecodeError where decode would.

    And for codecs that have none, which `Codec.has_tags` says beforehand.
    """
    view = ffi.from_buffer("uint8_t[]", body)
    counts = np.zeros(4, np.uint64)
    known = 0 <= count < 1 << 60
    if not known or lib.sn_tag_counts(
        codec.number, codec.parameter, view, len(view), count, ffi.from_buffer("uint64_t[]", counts)
    ):
        raise DecodeError(f"{len(view)} bytes are no {codec} encoding of {count} words")
    return TagCounts(*counts.tolist())
