"""A codec on a device: bodies of tensors, byte for byte those of softnic.codecs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton

from softnic import codecs
from softnic.codecs.rht_tables import rht_tables
from softnic.torch.gpu import bfp, mx, rht, truncate
from softnic.torch.gpu.bodies import place

_TILE_WORDS = 1024
"""Words of each program of a kernel: a warp has eight registers for them in each thread."""
COMPILED: Mapping[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
"""Of every launch. No product is fused with a sum, which would change bits."""
_PLACED_BLOCKS = 4
"""Of each program that puts a body together."""
_RHT_UNSAFE = 0x7B80
"""Scales from here on, which no encoder makes of floats that are transformed, are the host's (SN_RHT_SAFE_SCALE)."""
_MX = {1: (8, 3, 7, 0x7E, 0), 2: (8, 2, 15, 0x7B, 1), 3: (6, 3, 1, 0x1F, 0), 4: (4, 1, 1, 0x07, 0)}
"""Bits, bits of the mantissa, bias, largest magnitude and whether it has infinities, of each element type."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a codec, and the shape of its blocks."""

    module: ModuleType
    words: int
    """Of a block."""
    slot: int
    """Bytes of a regular block."""
    header: int
    """Bytes in front of the words of a block that is not encoded; 0: there is none."""
    least_irregular: int
    """Of headers: from this one on, and 0."""
    constants: Mapping[str, int]


def kernels_of(codec: codecs.Codec) -> Kernels | None:
    """Return the kernels of a codec, or None if a device has none for it."""
    number, parameter = codec.number, codec.parameter
    if number == 3:
        return Kernels(bfp, 16, 3 + 2 * parameter, 1, 255, {"BITS": parameter})
    if number == 4 and parameter <= 16:
        return Kernels(truncate, 64, 8 * parameter, 0, 0, {"BITS": parameter})
    if number == 5:
        return Kernels(rht, 128, 2 + 16 * parameter, 2, _RHT_UNSAFE, {"BITS": parameter})
    if number == 7:
        names = ("BITS", "FRACTION", "BIAS", "MOST", "INFINITE")
        return Kernels(mx, 32, 1 + 4 * _MX[parameter][0], 0, 0, dict(zip(names, _MX[parameter], strict=True)))
    return None


def tile_blocks(kernels: Kernels) -> int:
    """Return the blocks of each program of a kernel."""
    return max(1, _TILE_WORDS // kernels.words)


def placing(kernels: Kernels) -> dict[str, int]:
    """Return the constants with which `place` puts the bodies of a codec together."""
    raw = 4 * kernels.words
    tiles = {"SLOT_TILE": triton.next_power_of_2(kernels.slot), "RAW_TILE": triton.next_power_of_2(raw)}
    return {"M": _PLACED_BLOCKS, "SLOT": kernels.slot, "HEADER": kernels.header, "RAW": raw, **tiles}


@cache
def _tables(bits: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the sign changes, thresholds and levels of rht on a device."""
    signs, thresholds, levels = (torch.from_numpy(table).to(device) for table in rht_tables(bits))
    return signs, thresholds, levels


class DeviceCodec:
    """A codec whose kernels run where tensors are. Raises ValueError for one that has none."""

    def __init__(self, codec: codecs.Codec, device: torch.device) -> None:
        kernels = kernels_of(codec)
        if kernels is None:
            raise ValueError(f"{codec} has no kernels for a GPU")
        self.codec, self.device, self._kernels = codec, device, kernels
        self._tile = tile_blocks(kernels)
        self._tables = _tables(codec.parameter, device) if kernels.module is rht else ()

    @property
    def block_words(self) -> int:
        return self._kernels.words

    def slot_bytes(self, words: int) -> int:
        """Return the bytes of a body of `words` words, a multiple of `block_words`, if every block is regular."""
        return words // self._kernels.words * self._kernels.slot

    # Slots: nothing waits for the device.

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slots of float32 words, whole blocks, and the size of each block in a body."""
        blocks = self._blocks(words)
        slots = torch.empty(blocks * self._kernels.slot, dtype=torch.uint8, device=self.device)
        sizes = torch.empty(blocks, dtype=torch.int32, device=self.device)
        self._launch("encode", blocks, words, slots, sizes)
        return slots, sizes

    def decode_slots(self, slots: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode slots, all of them of regular blocks, to float32 words, or add them to these."""
        self._launch("decode", self._blocks(words), slots, words, ADD=add)

    # Bodies

    def encode(self, words: torch.Tensor) -> torch.Tensor:
        """Return the body of float32 words, whole blocks, on their device."""
        slots, sizes = self.encode_slots(words)
        if not self._kernels.header or bool((sizes == self._kernels.slot).all()):
            return slots
        ends = torch.cumsum(sizes, 0, dtype=torch.int64)
        body = torch.empty(int(ends[-1]), dtype=torch.uint8, device=self.device)
        shape = placing(self._kernels)
        grid = (triton.cdiv(sizes.numel(), shape["M"]),)
        place[grid](slots, words.view(torch.uint8), sizes, ends, body, sizes.numel(), **shape, **COMPILED)
        return body

    def decode(self, body: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode a body to float32 words, whole blocks, or add it to them. Raises DecodeError for a malformed one."""
        if self._is_regular(body, self._blocks(words)):
            self.decode_slots(body, words, add=add)
            return
        decoded = self.codec.decode(body.cpu().numpy(), words.numel())
        found = torch.from_numpy(np.array(decoded)).to(self.device)
        if add:
            words += found
        else:
            words.copy_(found)

    def _is_regular(self, body: torch.Tensor, blocks: int) -> bool:
        """Return whether a body is one of slots: the first block that is not regular begins where its slot would."""
        kernels = self._kernels
        if body.numel() != blocks * kernels.slot:
            return False
        if not kernels.header:
            return True
        headers = body.view(blocks, kernels.slot)[:, : kernels.header].to(torch.int32)
        value = headers[:, 0] if kernels.header == 1 else headers[:, 0] | headers[:, 1] << 8
        return not bool(((value == 0) | (value >= kernels.least_irregular)).any())

    def _blocks(self, words: torch.Tensor) -> int:
        blocks, rest = divmod(words.numel(), self._kernels.words)
        if rest or words.dtype != torch.float32 or not words.is_contiguous():
            raise ValueError(f"{words.dtype} words that are not contiguous blocks of {self._kernels.words}")
        return blocks

    def _launch(self, name: str, blocks: int, *tensors: torch.Tensor, **more: bool) -> None:
        if blocks:
            kernel = getattr(self._kernels.module, name)
            grid = (triton.cdiv(blocks, self._tile),)
            given = {**more, **self._kernels.constants, **COMPILED}
            kernel[grid](*tensors, *self._tables, blocks, M=self._tile, **given)
