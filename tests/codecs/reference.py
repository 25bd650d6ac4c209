"""Codecs 1 to 7 word for word as FORMAT.md puts them: slow, obvious, and independent of the library.

Words are ints. In codecs 1 and 2 a word's encoding is a tag (0..3) and its vector's bytes; codecs 3 to 7 make rows
of bits of blocks and groups. `shrink` finds the longest allowed prefix
by trying them all.
"""

from __future__ import annotations

import json
import math
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

_TABLES = Path(__file__).parent.parent / "vectors" / "rht-tables.json"

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


def codes_of(row: bytes, width: int) -> list[int]:
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
            words += codes_of(row, 32)
        else:
            step = 2.0 ** (shared - 127 - (m - 1))
            words += [code >> m << 31 | word_of((code & (1 << m) - 1) * step) for code in codes_of(row, 1 + m)]
    return words


def truncate_encode(words: Sequence[int], bits: int) -> bytes:
    padded = [*words, *[0] * (-len(words) % 8)]
    groups = [padded[start : start + 8] for start in range(0, len(padded), 8)]
    return b"".join(_row([word >> (32 - bits) for word in group], bits) for group in groups)


def truncate_decode(body: bytes, bits: int) -> list[int]:
    groups = [body[start : start + bits] for start in range(0, len(body), bits)]
    return [code << (32 - bits) for group in groups for code in codes_of(group, bits)]


TABLES = {b: {kind: np.array([int(bits, 16) for bits in words], np.uint32).view(np.float32)
              for kind, words in table.items()}
          for b, table in ((int(b), table) for b, table in json.loads(_TABLES.read_text()).items())}  # fmt: skip
"""Levels and thresholds of codec 5."""
SIGNS = 0x9E3779B97F4A7C15F39CC0605CEDC834


def rht_blocks(count: int) -> list[int]:
    """The words of the blocks of a body, of which the last is sent as it is."""
    sizes = [128] * (count // 128)
    for size in (64, 32, 16, 8):
        sizes += [size] * (count % (2 * size) // size)
    return [*sizes, count % 8]


def _hadamard(x: npt.NDArray[np.float32], half: int) -> npt.NDArray[np.float32]:
    """All sums at distance 1 first, then 2, and so on, each rounded once; then times 2^-half."""
    h = 1
    while h < x.size:
        pairs = x.reshape(-1, 2, h)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        h *= 2
    return x * np.float32(2.0**-half)


def _flipped(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    flips = np.array([SIGNS >> i & 1 for i in range(x.size)], np.uint32) << np.uint32(31)
    return (x.view(np.uint32) ^ flips).view(np.float32)


def rht_block(block: Sequence[int], b: int) -> bytes:
    words = np.array(block, np.uint32)
    if any(fields(word)[1] >= 0xF0 for word in block):
        return b"\xff\xff" + words.tobytes()
    r = _hadamard(_flipped(words.view(np.float32)), (len(block).bit_length() - 1) // 2)
    scale = int(np.abs(r).max().view(np.uint32)) + 0xFFFF - 256 >> 16
    if scale < word_of(2.0**-100) >> 16:
        return b"\0\0"
    thresholds = TABLES[b]["thresholds"] * np.uint32(scale << 16).view(np.float32)
    indices = (np.abs(r)[:, None] >= thresholds).sum(axis=1)
    codes = [int(index) | (x < 0) << b - 1 for index, x in zip(indices, r.tolist(), strict=True)]
    return scale.to_bytes(2, "little") + _row(codes, b)


def rht_encode(words: Sequence[int], b: int) -> bytes:
    body, done = b"", 0
    for size in rht_blocks(len(words)):
        block = words[done : done + size]
        body += rht_block(block, b) if size >= 8 else b"".join(word.to_bytes(4, "little") for word in block)
        done += size
    return body


def rht_decode(body: bytes, b: int, count: int) -> list[int]:
    words: list[int] = []
    for size in rht_blocks(count):
        scale, body = (int.from_bytes(body[:2], "little"), body[2:]) if size >= 8 else (0xFFFF, body)
        length = {0: 0, 0xFFFF: 4 * size}.get(scale, size * b // 8)
        row, body = body[:length], body[length:]
        if scale == 0:
            words += [0] * size
        elif scale == 0xFFFF:
            words += codes_of(row, 32)
        else:
            levels = TABLES[b]["levels"] * np.uint32(scale << 16).view(np.float32)
            values = [(-1) ** (code >> b - 1) * levels[code & (1 << b - 1) - 1] for code in codes_of(row, b)]
            x = _hadamard(np.array(values, np.float32), size.bit_length() // 2)
            words += _flipped(x).view(np.uint32).tolist()
    return words


def _plane(bits: Sequence[int]) -> bytes:
    return _row([*bits, *[0] * (-len(bits) % 8)], 1)


def exact_block(block: Sequence[int], bits: int) -> bytes:
    raw = b"".join(word.to_bytes(4, "little") for word in block)
    size = bits // 8
    symbols, below = [], b""
    for start in range(0, len(raw), size):
        element = int.from_bytes(raw[start : start + size], "little")
        rotated = (element << 1 | element >> bits - 1) & (1 << bits) - 1
        symbols.append(rotated >> bits - 8)
        below += rotated.to_bytes(size, "little")[:-1]
    seen = symbols[:128]
    greatest = min(max(seen), 254)
    candidates = [c for c in ((greatest - i) % 256 for i in range(8)) if c != 255]
    base = max(candidates, key=lambda c: sum(seen.count((c - i) % 256) for i in range(3)))
    distances = [(base - symbol) % 256 for symbol in symbols]
    others = [(distance, symbol) for distance, symbol in zip(distances, symbols, strict=True) if distance > 2]
    seconds = [0 if distance == 255 else min(distance - 2, 7) for distance, _ in others]
    firsts = [min(distance, 3) for distance in distances]
    body = bytes([base]) + b"".join(_plane([code >> bit & 1 for code in firsts]) for bit in range(2))
    body += b"".join(_plane([code >> bit & 1 for code in seconds]) for bit in range(3))
    body += bytes(symbol for code, (_, symbol) in zip(seconds, others, strict=True) if code == 7) + below
    return body if len(body) <= len(raw) else b"\xff" + raw


def exact_encode(words: Sequence[int], bits: int) -> bytes:
    return b"".join(exact_block(words[start : start + 128], bits) for start in range(0, len(words), 128))


MX = {1: (8, 3, 7, 0x7E), 2: (8, 2, 15, 0x7B), 3: (6, 3, 1, 0x1F), 4: (4, 1, 1, 0x07)}
"""By parameter: bits of an element, of its mantissa, bias, and the largest finite magnitude."""


@cache
def mx_values(k: int) -> list[float]:
    """What each finite magnitude stands for."""
    _, mantissa, bias, most = MX[k]
    values = []
    for magnitude in range(most + 1):
        field, fraction = divmod(magnitude, 1 << mantissa)
        significand = fraction / 2**mantissa + (field > 0)
        values.append(math.ldexp(significand, max(field, 1) - bias))
    return values


def mx_nearest(values: list[float], x: float) -> int:
    """The place of the value nearest to x, of two the even one; the last for all that are larger."""
    above = min(bisect_left(values, x), len(values) - 1)
    below = max(above - 1, 0)
    distances = abs(x - values[below]), abs(values[above] - x)
    return below if distances[0] < distances[1] or (distances[0] == distances[1] and below % 2 == 0) else above


def mx_block(block: Sequence[int], k: int) -> bytes:
    bits, values = MX[k][0], mx_values(k)
    greatest = max(word & 0x7FFFFFFF for word in block)
    if greatest >= 0x7F800000:
        return b"\xff" + bytes(-(-bits * len(block) // 8))
    exponents = [math.frexp(float_of(greatest))[1], math.frexp(values[-1])[1]]
    scale = max(exponents[0] - exponents[1], -127) if greatest else -127
    codes = [
        word >> 31 << bits - 1 | mx_nearest(values, math.ldexp(float_of(word & 0x7FFFFFFF), -scale)) for word in block
    ]
    row = sum(code << bits * place for place, code in enumerate(codes))
    return bytes([scale + 127]) + row.to_bytes(-(-bits * len(block) // 8), "little")


def mx_encode(words: Sequence[int], k: int) -> bytes:
    return b"".join(mx_block(words[start : start + 32], k) for start in range(0, len(words), 32))


def mx_word(code: int, scale: int, k: int) -> int:
    bits, mantissa, _, most = MX[k]
    sign, magnitude = code >> bits - 1 << 31, code & (1 << bits - 1) - 1
    if scale == 255:
        return 0x7FC00000
    if magnitude > most:
        return sign | (0x7F800000 if k == 2 and magnitude % (1 << mantissa) == 0 else 0x7FC00000)
    value = math.ldexp(mx_values(k)[magnitude], scale - 127)
    return sign | (word_of(value) if value < 2.0**128 else 0x7F800000)


def mx_decode(body: bytes, k: int, count: int) -> list[int]:
    bits, words = MX[k][0], list[int]()
    for start in range(0, count, 32):
        size = min(count - start, 32)
        row = int.from_bytes(body[1 : 1 + -(-bits * size // 8)], "little")
        words += [mx_word(row >> bits * place & (1 << bits) - 1, body[0], k) for place in range(size)]
        body = body[1 + -(-bits * size // 8) :]
    return words


SPLIT: dict[str, Split] = {"inceptionn": inceptionn_split, "bounded": bounded_split}
JOIN: dict[str, Join] = {"inceptionn": inceptionn_join, "bounded": bounded_join}
ENCODE: dict[str, Callable[[Sequence[int], int], bytes]] = {
    "inceptionn": inceptionn_encode,
    "bounded": bounded_encode,
    "bfp": bfp_encode,
    "truncate": truncate_encode,
    "rht": rht_encode,
    "exact": exact_encode,
    "mx": mx_encode,
}
DECODE: dict[str, Callable[[bytes, int], list[int]]] = {"bfp": bfp_decode, "truncate": truncate_decode}
"""Codecs of whole blocks: a body tells how many words it has, up to padding."""


def roundtrip(name: str, words: Sequence[int], k: int) -> list[int]:
    """decode(encode(word)) of each word."""
    if name == "exact":
        return list(words)
    if name in ("rht", "mx"):
        decode = rht_decode if name == "rht" else mx_decode
        return decode(ENCODE[name](words, k), k, len(words))
    if name in DECODE:
        return DECODE[name](ENCODE[name](words, k), k)[: len(words)]
    return [JOIN[name](*SPLIT[name](word, k), k) for word in words]


def shrink(
    encode: Callable[[Sequence[int]], bytes], words: Sequence[int], first: int, capacity: int, unit: int, blocks: bool
) -> int:
    """Words of the longest prefix that ends at an allowed cut and fits. Blocks begin where coding blocks do."""
    cuts = [0, *(cut for cut in range(first, len(words), unit)), len(words)]
    if blocks and first < unit:
        cuts = [cut for cut in cuts if cut <= first]
    return max(cut for cut in cuts if cut <= len(words) and len(encode(words[:cut])) <= capacity)
