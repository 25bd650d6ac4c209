"""The built-in codecs, by name and by number.

The table in C (native/codecs/codecs.c) is the only list of codecs: names, numbers and parameter ranges are read from
it. A `Codec` is a value: two with the same name and parameter are equal, and none has a parameter that its kernel
refuses. Calls release the GIL and use several threads for large arrays (`threads`).
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

_TEXT = re.compile(r"([a-z][a-z0-9]*)(?::([0-9]{1,3}|[a-z][a-z0-9]*))?")
_AUTO = "auto"
DEFAULT_AUTO = "bounded:10"
"""The codec of a plain `auto`, fixed: if each NIC chose one, ranks would end with different bits."""
_MAX_WORDS = 1 << 60
"""More words than fit into memory, and few enough that their size in bytes does not overflow."""


class CodecError(ValueError):
    """The codec does not exist, or does not accept the parameter."""


class DecodeError(ValueError):
    """The bytes are not an encoding of the expected words."""


class _Kind(NamedTuple):
    number: int
    lowest: int
    highest: int
    parameter_names: tuple[str, ...] = ()
    """How texts name the parameters from `lowest` on; empty: by their numbers."""

    @property
    def has_parameter(self) -> bool:
        return self.highest > 0

    @property
    def parameters(self) -> str:
        """The parameters that the codec accepts."""
        if self.parameter_names:
            return ", ".join(self.parameter_names)
        accepted = [p for p in range(self.lowest, self.highest + 1) if lib.sn_codec_valid(self.number, p)]
        consecutive = len(accepted) > self.highest - self.lowest
        return f"{self.lowest}..{self.highest}" if consecutive else " or ".join(map(str, accepted))

    def text_of(self, parameter: int) -> str:
        """How a text names a parameter."""
        return self.parameter_names[parameter - self.lowest] if self.parameter_names else str(parameter)

    def parameter_of(self, text: str) -> int | None:
        """The parameter that a text names, legal or not; None: it is no name of one."""
        if self.parameter_names:
            return self.lowest + self.parameter_names.index(text) if text in self.parameter_names else None
        return int(text) if text.isdecimal() else None


def _parameter_names(number: int, parameter: int) -> tuple[str, ...]:
    """Return the names of a codec's parameters from this one on."""
    name = lib.sn_codec_parameter_name(number, parameter)
    return () if name == ffi.NULL else (ffi.string(name).decode(), *_parameter_names(number, parameter + 1))


def _read_table() -> dict[str, _Kind]:
    kinds = {}
    lowest, highest = ffi.new("int *"), ffi.new("int *")
    for number in range(lib.SN_CODEC_NUMBERS):
        name = lib.sn_codec_describe(number, lowest, highest)
        if name != ffi.NULL:
            kinds[ffi.string(name).decode()] = _Kind(number, lowest[0], highest[0], _parameter_names(number, lowest[0]))
    return kinds


_KINDS = _read_table()
_NAMES = {kind.number: name for name, kind in _KINDS.items()}

BUILT_IN: int = sum(1 << kind.number for kind in _KINDS.values())
"""Bit n is set if codec number n is built in: what a NIC announces that it decodes."""


def names() -> tuple[str, ...]:
    """Return the names of the built-in codecs, in the order of their numbers."""
    return tuple(_NAMES[number] for number in sorted(_NAMES))


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec with its parameter.

    Arrays are float32 of any shape. Any other type raises TypeError, because a silent conversion would lose bits.

    Raises
    ------
    CodecError
        If the codec does not exist or does not accept the parameter.
    """

    name: str
    parameter: int = 0
    """0 for codecs without a parameter."""
    auto: bool = False
    """Whether a NIC may skip the encoding where it would be slower (softnic/nic/adaptive_codec.py). The floats still
    arrive as this codec decodes them, so only speed and size depend on it."""
    number: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        kind = _KINDS.get(self.name)
        if kind is None:
            known = ", ".join(names())
            raise CodecError(f"unknown codec {self.name!r}: use {known}, or {_AUTO}:CODEC for most of them")
        if not lib.sn_codec_valid(kind.number, self.parameter):
            takes = kind.parameters if kind.has_parameter else "none"
            raise CodecError(f"codec {self.name} does not accept parameter {self.parameter} (it accepts {takes})")
        if self.auto and not kind.number:
            raise CodecError(f"{_AUTO} needs a codec that compresses, as in {_AUTO}:{DEFAULT_AUTO}")
        object.__setattr__(self, "number", kind.number)

    def __str__(self) -> str:
        kind = _KINDS[self.name]
        own = f"{self.name}:{kind.text_of(self.parameter)}" if kind.has_parameter else self.name
        return f"{_AUTO}:{own}" if self.auto else own

    @property
    def has_tags(self) -> bool:
        """Whether words become vectors of 0, 8, 16 or 32 bits, which payload.tag_counts counts."""
        return bool(lib.sn_codec_has_tags(self.number))

    @property
    def block_bytes(self) -> int:
        """Bytes between two places where a tagged range of this codec may be cut: a multiple of 64."""
        return 4 * int(lib.sn_codec_block_words(self.number))

    @property
    def lossless(self) -> bool:
        """Whether every byte arrives as it was sent."""
        return self.name in ("raw", "exact")

    def bound(self, count: int) -> int:
        """Return the maximum bytes of `count` encoded words."""
        return int(lib.sn_encoded_bound(self.number, self.parameter, count))

    def least(self, count: int) -> int:
        """Return the minimum bytes of `count` encoded words."""
        return int(lib.sn_encoded_least(self.number, self.parameter, count))

    def encode(self, array: Floats) -> bytes:
        """Encode an array.

        Parameters
        ----------
        array : float32 array
            Any shape; encoded in C order.

        Returns
        -------
        bytes
            The encoding, without a payload header.
        """
        out = np.empty(self.bound(array.size), np.uint8)
        return out[: self.encode_into(array, out)].tobytes()

    def encode_into(self, array: Floats, out: Bytes) -> int:
        """Encode to the start of a writable buffer.

        Parameters
        ----------
        array : float32 array
            Any shape; encoded in C order.
        out : writable buffer
            With `bound(array.size)` bytes, all of them may be written to.

        Returns
        -------
        int
            Bytes used.

        Raises
        ------
        ValueError
            If `out` is too small.
        """
        words = _floats(array)
        room, view = ffi.from_buffer("uint8_t[]", out, require_writable=True), ffi.from_buffer("uint8_t[]", words)
        threads = threads_for(words.nbytes)
        if threads > 1 and len(room) >= self.bound(words.size):
            return int(lib.sn_parallel_encode(threads, self.number, self.parameter, view, words.size, room))
        consumed = ffi.new("size_t *")
        used = lib.sn_encode(
            self.number, self.parameter, view, words.size, self.block_bytes // 4, room, len(room), consumed
        )
        if consumed[0] != words.size:
            raise ValueError(f"{len(room)} bytes are not enough for {words.size} words encoded with {self}")
        return int(used)

    def decode(self, body: Bytes, count: int) -> Floats:
        """Decode bytes to a flat array.

        Parameters
        ----------
        body : bytes-like
            Exactly the encoding of `count` words.
        count : int
            Number of words.

        Returns
        -------
        float32 array
            Of shape (count,).

        Raises
        ------
        DecodeError
            If the bytes are not such an encoding.
        """
        self._check_count(body, count)
        out = np.empty(count, np.float32)
        self.decode_into(body, out)
        return out

    def decode_into(self, body: Bytes, out: Floats) -> None:
        """Decode exactly `out.size` words of `body` to a contiguous array, undefined after a DecodeError."""
        view = ffi.from_buffer("uint8_t[]", body)
        words = ffi.from_buffer("uint8_t[]", _exact_floats(out), require_writable=True)
        threads = threads_for(out.nbytes)
        if lib.sn_parallel_decode(threads, self.number, self.parameter, view, len(view), words, out.size):
            raise DecodeError(f"{len(view)} bytes are not a {self} encoding of {out.size} words")

    def roundtrip(self, array: Floats, out: Floats | None = None) -> Floats:
        """Compute decode(encode(array)) without the bytes in between: the values that a receiver gets.

        Parameters
        ----------
        array : float32 array
            The values to round.
        out : float32 array, optional
            Contiguous, of the same size; may be `array` itself but not overlap it otherwise.

        Returns
        -------
        float32 array
            `out`, or a new array of the same shape.
        """
        words = _floats(array)
        target = np.empty(array.shape, np.float32) if out is None else _exact_floats(out)
        if target.size != words.size:
            raise ValueError(f"out has {target.size} words, the array {words.size}")
        view, to = ffi.from_buffer("uint8_t[]", words), ffi.from_buffer("uint8_t[]", target, require_writable=True)
        if to != view and np.may_share_memory(target, words):
            raise ValueError("out overlaps the array but is not the same")
        lib.sn_parallel_roundtrip(threads_for(words.nbytes), self.number, self.parameter, view, words.size, to)
        return target

    def _check_count(self, body: Bytes, count: int) -> None:
        """Reject a count that the bytes cannot encode, before memory is allocated for it."""
        size = len(ffi.from_buffer("uint8_t[]", body))
        if not 0 <= count < _MAX_WORDS or size < self.least(count):
            raise DecodeError(f"{size} bytes are not a {self} encoding of {count} words")


def _exact_floats(array: Floats) -> Floats:
    if array.dtype != np.float32:
        raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")
    if not array.flags.c_contiguous:
        raise ValueError("the output array must be contiguous")
    return array


def _floats(array: Floats) -> Floats:
    return _exact_floats(np.ascontiguousarray(array))


def get(text: str) -> Codec:
    """Return the codec that `text` names, such as `bounded:10`, `raw` or `auto:bounded:10`. Raises CodecError."""
    if not isinstance(text, str):
        raise CodecError(f"a codec is given as a str like 'bounded:10', not {text!r}")
    return _parse(text)


@lru_cache(maxsize=256)
def _parse(text: str) -> Codec:
    first, colon, base = text.partition(":")
    if first == _AUTO:
        if colon and (not base or base.startswith(_AUTO)):
            raise CodecError(f"{text!r} is not a codec: expected for example {_AUTO}:{DEFAULT_AUTO}")
        return replace(get(base if colon else DEFAULT_AUTO), auto=True)
    match = _TEXT.fullmatch(text)
    if match is None:
        raise CodecError(
            f"{text!r} is not a codec: expected name:parameter, for example bounded:10 or {_AUTO}:{DEFAULT_AUTO}"
        )
    name, given = match[1], match[2]
    kind = _KINDS.get(name)
    if kind is None or (given is None and not kind.has_parameter):
        return Codec(name)
    parameter = kind.parameter_of(given) if given is not None and kind.has_parameter else None
    if parameter is None:
        wanted = f"for example {name}:{kind.text_of(kind.highest)}" if kind.has_parameter else name
        raise CodecError(f"{text!r} is not a codec: expected {wanted}")
    return Codec(name, parameter)


@lru_cache(maxsize=256)
def from_number(number: int, parameter: int) -> Codec:
    """Return the codec of a payload header's or a SYN's numbers. Raises CodecError."""
    if number not in _NAMES:
        raise CodecError(f"there is no codec number {number}")
    return Codec(_NAMES[number], parameter)
