"""Headers of a segment, and TCP options (RFC 9293, 7323, 2018, 6994).

Lengths, identification and checksums are zero here: segmentation fills them in for every frame.
"""

from __future__ import annotations

import struct

from softnic.packet.segment import Options, Segment

_HEADERS = "!6s6sHBBHHHBBHIIHHIIBBHHH"
_PLAIN = struct.Struct(_HEADERS)
_STAMPED = struct.Struct(_HEADERS + "HBBII")

HEADER_BYTES = _PLAIN.size
"""Ethernet, IPv4 and TCP without options."""
TIMESTAMP_BYTES = 12

_DONT_FRAGMENT = 0x4000
_NOP = 1
_EXPERIMENT = 0x534E4943
_VERSION = 1
_MSS = struct.Struct("!BBH")
_SCALE = struct.Struct("!BBB")
_SACK_PERMITTED = bytes([4, 2])
_TIMESTAMPS = struct.Struct("!BBII")
_CODECS = struct.Struct("!BBIBH")
_KIND_MSS, _KIND_SCALE, _KIND_SACK_PERMITTED, _KIND_SACK, _KIND_TIMESTAMPS, _KIND_CODECS = 2, 3, 4, 5, 8, 254
MAX_SCALE = 14
"""Of a window (RFC 7323, section 2.3)."""
_NONE = Options()


def pack_headers(segment: Segment, destination: bytes, source: bytes, identification: int) -> bytes:
    """Returns the Ethernet, IPv4 and TCP header, options included, of the first frame of a segment."""
    # This runs for every segment: the usual one is packed in one call.
    timestamps = segment.timestamps
    if segment.options is not None or segment.sacks:
        options = pack_options(segment.options or _NONE, timestamps, segment.sacks)
        return _pack(segment, destination, source, identification, 5 + len(options) // 4) + options
    if timestamps is None:
        return _pack(segment, destination, source, identification, 5)
    return _STAMPED.pack(
        destination, source, 0x0800,
        0x45, segment.tos, 0, identification, _DONT_FRAGMENT, segment.ttl, 6, 0, segment.src, segment.dst,
        segment.sport, segment.dport, segment.seq, segment.ack, 0x80, segment.flags, segment.window, 0, 0,
        0x0101, 8, 10, timestamps[0], timestamps[1],
    )  # fmt: skip


def _pack(segment: Segment, destination: bytes, source: bytes, identification: int, words: int) -> bytes:
    """Returns the headers without options; `words` is the length of the TCP header with options."""
    return _PLAIN.pack(
        destination, source, 0x0800,
        0x45, segment.tos, 0, identification, _DONT_FRAGMENT, segment.ttl, 6, 0, segment.src, segment.dst,
        segment.sport, segment.dport, segment.seq, segment.ack, words << 4, segment.flags, segment.window, 0, 0,
    )  # fmt: skip


def pack_options(
    options: Options, timestamps: tuple[int, int] | None, sacks: tuple[tuple[int, int], ...] = ()
) -> bytes:
    """Returns the options of a SYN, or of a segment with SACK blocks, padded with NOPs to whole words.

    At most three blocks with timestamps, and four without (RFC 2018, section 3).
    """
    parts = []
    if options.mss is not None:
        parts.append(_MSS.pack(_KIND_MSS, _MSS.size, options.mss))
    if options.sack_permitted:
        parts.append(_SACK_PERMITTED)
    if timestamps is not None:
        parts.append(_TIMESTAMPS.pack(_KIND_TIMESTAMPS, _TIMESTAMPS.size, *timestamps))
    if options.window_scale is not None:
        parts.append(_SCALE.pack(_KIND_SCALE, _SCALE.size, options.window_scale))
    if options.codecs is not None:
        parts.append(_CODECS.pack(_KIND_CODECS, _CODECS.size, _EXPERIMENT, _VERSION, options.codecs))
    if sacks:
        sacks = sacks[: 3 if timestamps is not None else 4]
        numbers = [number for block in sacks for number in block]
        parts.append(struct.pack(f"!BB{len(numbers)}I", _KIND_SACK, 2 + 4 * len(numbers), *numbers))
    packed = b"".join(parts)
    return packed + bytes([_NOP]) * (-len(packed) % 4)


def unpack_sacks(data: bytes) -> tuple[tuple[int, int], ...]:
    """Returns the blocks of a SACK option found by the frame parser."""
    numbers = struct.unpack(f"!{len(data) // 4}I", data)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def parse_options(data: bytes) -> Options:
    """Returns the options of a SYN, up to the first invalid length.

    Options of a wrong length, unknown ones, and other experiments under our kind are ignored.
    """
    options = Options()
    at = 0
    while at < len(data) and data[at] != 0:
        if data[at] == _NOP:
            at += 1
            continue
        if at + 1 == len(data) or not 2 <= data[at + 1] <= len(data) - at:
            break
        kind, length = data[at], data[at + 1]
        if (kind, length) == (_KIND_MSS, _MSS.size):
            options.mss = _MSS.unpack_from(data, at)[2]
        elif (kind, length) == (_KIND_SCALE, _SCALE.size):
            options.window_scale = min(data[at + 2], MAX_SCALE)
        elif (kind, length) == (_KIND_SACK_PERMITTED, 2):
            options.sack_permitted = True
        elif (kind, length) == (_KIND_CODECS, _CODECS.size):
            _, _, experiment, version, codecs = _CODECS.unpack_from(data, at)
            if experiment == _EXPERIMENT and version == _VERSION:
                options.codecs = codecs
        at += length
    return options
