"""Codecs 1 to 4 word for word as FORMAT.md puts them: slow, obvious, and independent of the library.

Words are ints. In codecs 1 and 2 a word's encoding is a tag (0..3) and its vector's bytes; codecs 3 and 4 make rows
of bits of blocks and groups. `shrink` finds the longest allowed prefix
by trying them all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

Split = Callable[[int, int], tuple[int, bytes]]
"""Word and parameter to tag and vector."""
Join = Callable[[int, bytes, int], int]
"""Tag, vector and parameter to word."""


def fields(word: int) -> tuple[int, int, int]:
    """Sign, exponent field, mantissa field."""
    return word >> 31, word >> 23 & 0xFF, word & 0x7FFFFF


def float_of(word: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", word))[0]
    return value


def word_of(value: float) -> int:
    word: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return word


def inceptionn_split(word: int, k: int) -> tuple[int, bytes]:
    s, e, m = fields(word)
    b = 127 - k
    if e >= 127:
        return 3, word.to_bytes(4, "little")
    if e < b:
        return 0, b""
    shifted = (1 << 23 | m) >> (127 - e)
    if e >= b + -((127 - b) // -2):
        return 2, (s << 15 | shifted >> 8).to_bytes(2, "little")
    return 1, (s << 7 | shifted >> 16).to_bytes(1, "little")


def inceptionn_join(tag: int, vector: bytes, k: int) -> int:  # noqa: ARG001 - a threshold is no part of a vector
    value = int.from_bytes(vector, "little")
    if tag == 3:
        return value
    if tag == 0:
        return 0
    width = 8 * len(vector) - 1
    sign, bits = value >> width, format(value & (1 << width) - 1, f"0{width}b")
    if "1" not in bits:
        return 0
    first = bits.index("1") + 1
    return sign << 31 | (127 - first) << 23 | int(bits[first:].ljust(23, "0"), 2)


def bounded_split(word: int, k: int) -> tuple[int, bytes]:
    s, e, _ = fields(word)
    if e == 255:
        return 3, word.to_bytes(4, "little")
    q = round(abs(float_of(word)) * 2 ** (k - 1))  # exact in a double; round() on it is half to even
    if q == 0:
        return 0, b""
    if q <= 127:
        return 1, (s << 7 | q).to_bytes(1, "little")
    if q <= 32767:
        return 2, (s << 15 | q).to_bytes(2, "little")
    return 3, word.to_bytes(4, "little")


def bounded_join(tag: int, vector: bytes, k: int) -> int:
    value = int.from_bytes(vector, "little")
    if tag == 3:
        return value
    if tag == 0:
        return 0
    width = 8 * len(vector) - 1
    return value >> width << 31 | word_of((value & (1 << width) - 1) * 2.0 ** (1 - k))


def _burst(split: Split, words: Sequence[int], k: int) -> tuple[int, bytes]:
    """Tag word and vectors of up to eight words."""
    parts = [split(word, k) for word in words]
    return sum(tag << 2 * lane for lane, (tag, _) in enumerate(parts)), b"".join(vector for _, vector in parts)


def inceptionn_encode(words: Sequence[int], k: int) -> bytes:
    body = b""
    for start in range(0, len(words), 8):
        tags, vectors = _burst(inceptionn_split, words[start : start + 8], k)
        body += tags.to_bytes(2, "little") + vectors
    return body


def bounded_encode(words: Sequence[int], k: int) -> bytes:
    body = b""
    for start in range(0, len(words), 64):
        group = words[start : start + 64]
        flags, bursts = 0, b""
        for number in range((len(group) + 7) // 8):
            tags, vectors = _burst(bounded_split, group[8 * number : 8 * number + 8], k)
            if tags:
                flags |= 1 << number
                bursts += tags.to_bytes(2, "little") + vectors
        body += bytes([flags]) + bursts
    return body


def _row(codes: Sequence[int], width: int) -> bytes:
    """Codes of `width` bits packed from bit 0 up."""
    joined = sum(code << width * lane for lane, code in enumerate(codes))
    return joined.to_bytes(len(codes) * width // 8, "little")


def _codes(row: bytes, width: int) -> list[int]:
    joined = int.from_bytes(row, "little")
    return [joined >> start & (1 << width) - 1 for start in range(0, 8 * len(row), width)]


def bfp_block(block: Sequence[int], m: int) -> bytes:
    shared = max(fields(word)[1] for word in block)
    if shared == 0:
        return b"\0"
    if shared == 255:
        return b"\xff" + b"".join(word.to_bytes(4, "little") for word in block)
    codes = []
    for word in block:
        q = min(round(abs(float_of(word)) / 2.0 ** (shared - 127 - (m - 1))), 2**m - 1)  # exact in a double
        codes.append((fields(word)[0] if q else 0) << m | q)
    return bytes([shared]) + _row(codes, 1 + m)


def bfp_encode(words: Sequence[int], m: int) -> bytes:
    padded = [*words, *[0] * (-len(words) % 16)]
    return b"".join(bfp_block(padded[start : start + 16], m) for start in range(0, len(padded), 16))


def bfp_decode(body: bytes, m: int) -> list[int]:
    words: list[int] = []
    while body:
        shared, size = body[0], {0: 0, 255: 64}.get(body[0], 2 * (1 + m))
        row, body = body[1 : 1 + size], body[1 + size :]
        if shared == 0:
            words += [0] * 16
        elif shared == 255:
            words += _codes(row, 32)
        else:
            step = 2.0 ** (shared - 127 - (m - 1))
            words += [code >> m << 31 | word_of((code & (1 << m) - 1) * step) for code in _codes(row, 1 + m)]
    return words


def truncate_encode(words: Sequence[int], bits: int) -> bytes:
    padded = [*words, *[0] * (-len(words) % 8)]
    groups = [padded[start : start + 8] for start in range(0, len(padded), 8)]
    return b"".join(_row([word >> (32 - bits) for word in group], bits) for group in groups)


def truncate_decode(body: bytes, bits: int) -> list[int]:
    groups = [body[start : start + bits] for start in range(0, len(body), bits)]
    return [code << (32 - bits) for group in groups for code in _codes(group, bits)]


SPLIT: dict[str, Split] = {"inceptionn": inceptionn_split, "bounded": bounded_split}
JOIN: dict[str, Join] = {"inceptionn": inceptionn_join, "bounded": bounded_join}
ENCODE: dict[str, Callable[[Sequence[int], int], bytes]] = {
    "inceptionn": inceptionn_encode,
    "bounded": bounded_encode,
    "bfp": bfp_encode,
    "truncate": truncate_encode,
}
DECODE: dict[str, Callable[[bytes, int], list[int]]] = {"bfp": bfp_decode, "truncate": truncate_decode}


def roundtrip(name: str, words: Sequence[int], k: int) -> list[int]:
    """decode(encode(word)) of each word."""
    if name in DECODE:
        return DECODE[name](ENCODE[name](words, k), k)[: len(words)]
    return [JOIN[name](*SPLIT[name](word, k), k) for word in words]


def shrink(
    encode: Callable[[Sequence[int]], bytes], words: Sequence[int], first: int, capacity: int, blocks: bool
) -> int:
    """Words of the longest prefix that ends at an allowed cut and fits. Blocks begin where coding blocks do."""
    cuts = [0, *(cut for cut in range(first, len(words), 16)), len(words)]
    if blocks and first < 16:
        cuts = [cut for cut in cuts if cut <= first]
    return max(cut for cut in cuts if cut <= len(words) and len(encode(words[:cut])) <= capacity)
