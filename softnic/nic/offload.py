"""The offload table: which type of service selects which codec.

A ToS is compared without its two ECN bits (`tos & 0xFC`). Both ends of a link need the same ToS values in their tables,
because a segment's ToS says that a payload header follows; the codecs may differ, because the header names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from softnic import codecs
from softnic.packet.segment import Tag
from softnic.tcp.send_buffer import SHORTEST, Cuts

DEFAULT_TOS = 0x28
DEFAULT_OFFLOADS: Mapping[int, str] = MappingProxyType({DEFAULT_TOS: "bounded:10"})
TOS_MASK = 0xFC


class CodecChoice(NamedTuple):
    """The codec applied to a segment; number -1: none."""

    number: int
    parameter: int
    adaptive: codecs.Codec | None = None
    """The codec, if the NIC may leave it out."""


PLAIN = CodecChoice(-1, 0)
RAW = CodecChoice(0, 0)


class OffloadTable:
    """Maps ToS to codec.

    Raises
    ------
    ValueError
        For a ToS outside 1..255 or with only ECN bits set (ToS 0 is that of untagged streams), for two that differ only
        in these bits, and for an unknown codec.
    """

    def __init__(self, offloads: Mapping[int, str] = DEFAULT_OFFLOADS) -> None:
        self.codecs: dict[int, str] = {}
        for tos, name in offloads.items():
            if not 0 < tos < 256 or not tos & TOS_MASK:
                raise ValueError(f"ToS {tos:#x} cannot select an offload: 0x04 to 0xfc can")
            if tos & TOS_MASK in self.codecs:
                raise ValueError(f"ToS {tos:#x} is in the offload table twice (its two low bits do not count)")
            self.codecs[tos & TOS_MASK] = str(codecs.get(name))
        self.bitmap = sum(1 << (tos >> 2) for tos in self.codecs)
        """Bit `tos >> 2` is set for every ToS in the table."""
        self._choices: dict[str, CodecChoice] = {}

    def selects(self, tos: int) -> bool:
        return bool(self.bitmap >> (tos >> 2) & 1)

    def cuts_of(self, tag: Tag) -> Cuts:
        """Return where a range with this tag may be cut."""
        if not self.selects(tag.tos):
            return SHORTEST
        codec = codecs.get(tag.codec if tag.codec is not None else self.codecs[tag.tos & TOS_MASK])
        return Cuts(codec.block_bytes, codec.lossless)

    def codec_of(self, tos: int, override: str | None) -> CodecChoice:
        """Return the codec for a ToS that selects an offload. Raises ValueError if it is unknown."""
        name = override if override is not None else self.codecs[tos & TOS_MASK]
        choice = self._choices.get(name)
        if choice is None:
            codec = codecs.get(name)
            choice = CodecChoice(codec.number, codec.parameter, codec if codec.auto else None)
            self._choices[name] = choice
        return choice
