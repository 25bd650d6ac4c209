"""The codecs that are built in, by name and by number, and what all of them can do.

The C table (native/codecs.c) is the only list of codecs: names, numbers and parameter ranges are read from it. A
`Codec` is a value: two with the same name and parameter are equal, and none can hold a parameter that its kernel
does not take. Calls release the GIL while they work, and use several threads for large arrays (`threads`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.codecs.threads import threads_for

Floats = npt.NDArray[np.float32]
Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

_TEXT = re.compile(r"([a-z][a-z0-9]*)(?::([0-9]{1,3}))?")
_AUTO = "auto"
DEFAULT_AUTO = "bounded:10"
"""What `auto` alone stands for, everywhere: were it a NIC's choice, ranks would end with different bits."""
_MOST_WORDS = 1 << 60
"""More than memory holds and fewer than make a size in bytes overflow."""


class CodecError(ValueError):
    """A codec that does not exist, or a parameter that it does not take."""


class DecodeError(ValueError):
    """Bytes that are no encoding of what they are said to encode."""


class _Kind(NamedTuple):
    number: int
    lowest: int
    highest: int

    @property
    def has_parameter(self) -> bool:
        return self.highest > 0


def _read_table() -> dict[str, _Kind]:
    kinds = {}
    lowest, highest = ffi.new("int *"), ffi.new("int *")
    for number in range(lib.SN_CODEC_NUMBERS):
        name = lib.sn_codec_describe(number, lowest, highest)
        if name != ffi.NULL:
            kinds[ffi.string(name).decode()] = _Kind(number, lowest[0], highest[0])
    return kinds


_KINDS = _read_table()
_NAMES = {kind.number: name for name, kind in _KINDS.items()}

BUILT_IN: int = sum(1 << kind.number for kind in _KINDS.values())
"""Bit n: codec number n is built in. What a NIC announces that it can decode."""


def names() -> tuple[str, ...]:
    """Names of the built-in codecs, in the order of their numbers."""
    return tuple(_NAMES[number] for number in sorted(_NAMES))


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec with its parameter. Raises CodecError for what does not exist.

    Arrays are float32, of any shape; anything else is a TypeError, because a silent conversion would lose bits
    that the caller does not know of.
    """

    name: str
    parameter: int = 0
    """0 where the codec takes none."""
    auto: bool = False
    """A NIC leaves the encoding out where it would be slower with it. The floats arrive as this codec leaves them
    all the same, so only speed and size depend on what the NIC decides (softnic/nic/adaptive_codec.py)."""
    number: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        kind = _KINDS.get(self.name)
        if kind is None:
            known = ", ".join(names())
            raise CodecError(f"there is no codec {self.name!r}; there are {known}, and {_AUTO}:CODEC for most of them")
        if not kind.lowest <= self.parameter <= kind.highest:
            takes = f"{kind.lowest}..{kind.highest}" if kind.has_parameter else "none"
            raise CodecError(f"codec {self.name} takes no parameter {self.parameter} (it takes {takes})")
        if self.auto and not kind.number:
            raise CodecError(f"{_AUTO} needs a codec that compresses, as in {_AUTO}:{DEFAULT_AUTO}")
        object.__setattr__(self, "number", kind.number)

    def __str__(self) -> str:
        own = f"{self.name}:{self.parameter}" if _KINDS[self.name].has_parameter else self.name
        return f"{_AUTO}:{own}" if self.auto else own

    @property
    def has_tags(self) -> bool:
        """Its words become vectors of 0, 8, 16 or 32 bits, which payload.tag_counts counts."""
        return bool(lib.sn_codec_has_tags(self.number))

    def bound(self, count: int) -> int:
        """Bytes that are enough for `count` words, whatever they are."""
        return int(lib.sn_encoded_bound(self.number, self.parameter, count))

    def least(self, count: int) -> int:
        """Bytes that no encoding of `count` words stays below."""
        return int(lib.sn_encoded_least(self.number, self.parameter, count))

    def encode(self, array: Floats) -> bytes:
        """The array's words, in C order, encoded."""
        out = np.empty(self.bound(array.size), np.uint8)
        return out[: self.encode_into(array, out)].tobytes()

    def encode_into(self, array: Floats, out: Bytes) -> int:
        """Encodes to the start of a writable buffer; returns the bytes used. ValueError if they are too few. Where the
        buffer has `bound` bytes, those behind the ones used may be written, too."""
        words = _floats(array)
        room, view = ffi.from_buffer("uint8_t[]", out, require_writable=True), ffi.from_buffer("uint8_t[]", words)
        threads = threads_for(words.nbytes)
        if threads > 1 and len(room) >= self.bound(words.size):
            return int(lib.sn_parallel_encode(threads, self.number, self.parameter, view, words.size, room))
        consumed = ffi.new("size_t *")
        used = lib.sn_encode(
            self.number, self.parameter, view, words.size, lib.SN_CODING_BLOCK_WORDS, room, len(room), consumed
        )
        if consumed[0] != words.size:
            raise ValueError(f"{len(room)} bytes are too few for {words.size} words encoded with {self}")
        return int(used)

    def decode(self, body: Bytes, count: int) -> Floats:
        """The `count` words, as a flat array, that exactly these bytes stand for. Raises DecodeError."""
        self._check_count(body, count)
        out = np.empty(count, np.float32)
        self.decode_into(body, out)
        return out

    def decode_into(self, body: Bytes, out: Floats) -> None:
        """Decodes exactly `out.size` words to a contiguous array. After a DecodeError its contents are undefined."""
        view = ffi.from_buffer("uint8_t[]", body)
        words = ffi.from_buffer("uint8_t[]", _exact_floats(out), require_writable=True)
        threads = threads_for(out.nbytes)
        if lib.sn_parallel_decode(threads, self.number, self.parameter, view, len(view), words, out.size):
            raise DecodeError(f"{len(view)} bytes are no {self} encoding of {out.size} words")

    def roundtrip(self, array: Floats, out: Floats | None = None) -> Floats:
        """decode(encode(array)) without the bytes between: what the other side of a link will hold.

        `out` is a contiguous array of as many words, and may be `array` itself (but not overlap it otherwise).
        Returns `out`, or a new array of the same shape.
        """
        words = _floats(array)
        target = np.empty(array.shape, np.float32) if out is None else _exact_floats(out)
        if target.size != words.size:
            raise ValueError(f"out has {target.size} words, the array {words.size}")
        view, to = ffi.from_buffer("uint8_t[]", words), ffi.from_buffer("uint8_t[]", target, require_writable=True)
        if to != view and np.may_share_memory(target, words):
            raise ValueError("out overlaps the array without being the same")
        lib.sn_parallel_roundtrip(threads_for(words.nbytes), self.number, self.parameter, view, words.size, to)
        return target

    def _check_count(self, body: Bytes, count: int) -> None:
        """Refuses more words than so many bytes can stand for, before memory is set aside for them."""
        size = len(ffi.from_buffer("uint8_t[]", body))
        if not 0 <= count < _MOST_WORDS or size < self.least(count):
            raise DecodeError(f"{size} bytes are no {self} encoding of {count} words")


def _exact_floats(array: Floats) -> Floats:
    if array.dtype != np.float32:
        raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")
    if not array.flags.c_contiguous:
        raise ValueError("the array to write to must be contiguous")
    return array


def _floats(array: Floats) -> Floats:
    return _exact_floats(np.ascontiguousarray(array))


def get(text: str) -> Codec:
    """The codec of `bounded:10`, `raw` or `auto:bounded:10`. Raises CodecError."""
    if not isinstance(text, str):
        raise CodecError(f"a codec is named by a str, as in 'bounded:10', not by {text!r}")
    return _parse(text)


@lru_cache(maxsize=256)
def _parse(text: str) -> Codec:
    first, colon, base = text.partition(":")
    if first == _AUTO:
        if colon and (not base or base.startswith(_AUTO)):
            raise CodecError(f"{text!r} is no codec: {_AUTO}:{DEFAULT_AUTO} is expected, say")
        return replace(get(base if colon else DEFAULT_AUTO), auto=True)
    match = _TEXT.fullmatch(text)
    if match is None:
        raise CodecError(
            f"{text!r} is no codec: name:parameter is expected, as in bounded:10 or {_AUTO}:{DEFAULT_AUTO}"
        )
    name, parameter = match[1], match[2]
    kind = _KINDS.get(name)
    if kind is not None and kind.has_parameter != (parameter is not None):
        wanted = f"{name}:{kind.highest}" if kind.has_parameter else name
        raise CodecError(f"{text!r} is no codec: {wanted} is expected" + (", say" if kind.has_parameter else ""))
    return Codec(name, int(parameter or 0))


@lru_cache(maxsize=256)
def from_number(number: int, parameter: int) -> Codec:
    """The codec that a payload header or a SYN names. Raises CodecError."""
    if number not in _NAMES:
        raise CodecError(f"there is no codec number {number}")
    return Codec(_NAMES[number], parameter)
