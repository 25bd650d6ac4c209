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
from softnic.codecs.combine import ReduceOp, decode_combine
from softnic.codecs.rht_tables import rht_tables
from softnic.torch.gpu import bfp, mx, rht, truncate
from softnic.torch.gpu.bodies import place
from softnic.torch.gpu.kernels import (
    Shape,
    decode,
    decode_and_add,
    decode_body,
    encode,
    encode_with_residual,
    reduce,
)

_TILE_WORDS = 512
"""Words of each program of a kernel: 16 in each thread of its warp."""
COMPILED: Mapping[str, Any] = {"num_warps": 1, "enable_fp_fusion": False}
"""Of every launch. A warp by itself never waits for another one. No product is fused with a sum, which would change
bits."""
_PLACED_BLOCKS = 1
"""Of each program that puts a body together."""
_RHT_UNSAFE = 0x7B80
"""Scales from here on, which no encoder makes of floats that are transformed, are the host's (SN_RHT_SAFE_SCALE)."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a codec."""

    module: ModuleType
    shape: Shape

    def constants(self, kernel: Any) -> dict[str, Any]:
        """Return what one of them is compiled with."""
        known = {"SHAPE": self.shape, "QUANTISE": self.module.quantise, "RESTORE": self.module.restore}
        return {name: value for name, value in known.items() if name in kernel.arg_names}


def kernels_of(codec: codecs.Codec) -> Kernels | None:
    """Return the kernels of a codec, or None if it has no slots on a device."""
    number, parameter = codec.number, codec.parameter
    if number == 3:
        return _kernels(bfp, codec, words=16, header=1, bits=1 + parameter, irregular=255)
    if number == 4 and parameter <= 16:
        return _kernels(truncate, codec, words=64, header=0, bits=parameter)
    if number == 5:
        return _kernels(rht, codec, words=128, header=2, bits=parameter, irregular=_RHT_UNSAFE)
    if number == 7:
        return _kernels(mx, codec, words=32, header=1, bits=mx.ELEMENT_BITS.value[parameter])
    return None


def _kernels(
    module: ModuleType, codec: codecs.Codec, *, words: int, header: int, bits: int, irregular: int = 0
) -> Kernels:
    return Kernels(module, Shape(_TILE_WORDS // words, words, header, bits, irregular, codec.parameter))


def placing(shape: Shape) -> dict[str, int]:
    """Return the constants with which `place` puts the bodies of a codec together."""
    raw = 4 * shape.words
    tiles = {"SLOT_TILE": triton.next_power_of_2(shape.slot), "RAW_TILE": triton.next_power_of_2(raw)}
    return {"M": _PLACED_BLOCKS, "SLOT": shape.slot, "HEADER": shape.header, "RAW": raw, **tiles}


@cache
def _tables(codec: codecs.Codec, device: torch.device) -> torch.Tensor:
    """Return the tables of a codec on a device: of rht, the sign bits that are flipped, the thresholds, the levels."""
    if codec.number != 5:
        return torch.empty(0, device=device)
    signs, thresholds, levels = rht_tables(codec.parameter)
    flipped = (signs.astype(np.uint32) << 31).view(np.float32)
    return torch.from_numpy(np.concatenate([flipped, thresholds, levels])).to(device)


def whole_blocks(words: torch.Tensor, block: int) -> int:
    """Return how many blocks of `block` words a tensor has. Raises ValueError if they are not whole."""
    blocks, rest = divmod(words.numel(), block)
    if rest or words.dtype != torch.float32 or not words.is_contiguous():
        raise ValueError(f"{words.dtype} words that are not contiguous blocks of {block}")
    return blocks


class DeviceCodec:
    """A codec with slots whose kernels run where tensors are. Raises ValueError for one that has none, as exact, which
    has a class of its own (exact_codec.py)."""

    def __init__(self, codec: codecs.Codec, device: torch.device) -> None:
        kernels = kernels_of(codec)
        if kernels is None:
            raise ValueError(f"{codec} has no slots on a GPU")
        self.codec, self.device, self._kernels, self._shape = codec, device, kernels, kernels.shape
        self._tables = _tables(codec, device)

        shape = kernels.shape
        self.block_words, self.word_bytes, self.slot = shape.words, 4, shape.slot
        others = {shape.header, shape.header + 4 * shape.words} if shape.irregular else ()
        self.sizes = frozenset({shape.slot, *others})
        """That blocks may have in a body."""

    def slot_bytes(self, words: int) -> int:
        """Return the bytes of a body of `words` words, a multiple of `block_words`, if every block is regular."""
        return words // self._shape.words * self._shape.slot

    # Slots: nothing waits for the device.

    def encode_slots(
        self, words: torch.Tensor, *, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slots of float32 words, whole blocks, and the size of each block in a body.

        With a residual, an equal number of words, what is encoded is the sum of both, and the residual becomes the
        error: the sum less what the slots decode to, or 0 where that is infinite or NaN (native/codecs/feedback.h).
        """
        slots, sizes = self._slots(words)
        if residual is None:
            self._launch(encode, words, slots=slots, sizes=sizes)
        else:
            if self._blocks(residual) != self._blocks(words):
                raise ValueError(f"a residual of {residual.numel()} words goes with {words.numel()}")
            self._launch(encode_with_residual, words, residual=residual, slots=slots, sizes=sizes)
        return slots, sizes

    def decode_slots(self, slots: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode slots, all of them of regular blocks, to float32 words, or add them to these.

        Slots that are added may be those of several contributions (`reduce_slots`).
        """
        count = self._count(slots, words)
        if add:
            self._launch(decode_and_add, words, contributions=slots, COUNT=count)
            return
        if count != 1 and words.numel():
            raise ValueError(f"{slots.numel()} bytes are not the slots of one body of {words.numel()} words")
        self._launch(decode, words, slots=slots)

    def reduce_slots(
        self, contributions: torch.Tensor, words: torch.Tensor, *, decode: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slots of a sum, and the size of each of its blocks in a body.

        Parameters
        ----------
        contributions : uint8 tensor
            The slots of any number of contributions, one behind the other, each of as many words as `words`. All are of
            regular blocks.
        words : float32 tensor
            Whole blocks. The contributions are added to them one after the other, as the owner of a shard does
            (softnic/collectives/schedule/direct.py).
        decode : bool
            Whether `words` become what the sum's slots decode to, irregular blocks included. Else they stay.
        """
        slots, sizes = self._slots(words)
        count = self._count(contributions, words)
        self._launch(reduce, words, contributions=contributions, slots=slots, sizes=sizes, DECODE=decode, COUNT=count)
        return slots, sizes

    def encode_rounded(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Do as `encode_slots`; the words become what their slots decode to, irregular blocks included."""
        return self.reduce_slots(torch.empty(0, dtype=torch.uint8, device=self.device), words, decode=True)

    # Bodies

    def encode(self, words: torch.Tensor) -> torch.Tensor:
        """Return the body of float32 words, whole blocks, on their device."""
        return self.body(*self.encode_slots(words), words)

    def body(self, slots: torch.Tensor, sizes: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return the body of slots with these sizes of blocks: the slots themselves if all are regular.

        Blocks of infinities, NaNs and huge words are taken from `words`: what was encoded, or what it decodes to.
        """
        if not self._shape.irregular or bool((sizes == self._shape.slot).all()):
            return slots
        return self.body_of(words, slots, sizes, int(sizes.sum()))

    def body_of(self, words: torch.Tensor, slots: torch.Tensor, sizes: torch.Tensor, size: int) -> torch.Tensor:
        """Return the body of slots with these sizes of blocks, `size` together. Nothing waits for the device."""
        body = torch.empty(size, dtype=torch.uint8, device=self.device)
        if not size:
            return body
        ends, shape = torch.cumsum(sizes, 0, dtype=torch.int64), placing(self._shape)
        grid = (triton.cdiv(sizes.numel(), shape["M"]),)
        place[grid](slots, words.view(torch.uint8), sizes, ends, body, sizes.numel(), **shape, **COMPILED)
        return body

    def decode_sizes(self, body: torch.Tensor, sizes: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode a body to float32 words, or add it to them. Nothing waits for the device.

        The sizes of its blocks, int32, are of `sizes` and add up to its length.
        """
        ends = torch.cumsum(sizes, 0, dtype=torch.int64)
        self._launch(decode_body, words, body=body, sizes=sizes, ends=ends, ADD=add)

    def decode(self, body: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode a body to float32 words, whole blocks, or add it to them. Raises DecodeError for a malformed one."""
        if self._is_regular(body, self._blocks(words)):
            self.decode_slots(body, words, add=add)
            return
        given = body.cpu().numpy()
        if add:
            found = decode_combine(self.codec, given, ReduceOp.SUM, words.cpu().numpy())
        else:
            found = np.array(self.codec.decode(given, words.numel()))
        words.copy_(torch.from_numpy(found))

    def _is_regular(self, body: torch.Tensor, blocks: int) -> bool:
        """Return whether a body is one of slots: the first block that is not regular begins where its slot would."""
        shape = self._shape
        if body.numel() != blocks * shape.slot:
            return False
        if not shape.irregular:
            return True
        headers = body.view(blocks, shape.slot)[:, : shape.header].to(torch.int32)
        value = headers[:, 0] if shape.header == 1 else headers[:, 0] | headers[:, 1] << 8
        return not bool(((value == 0) | (value >= shape.irregular)).any())

    def _blocks(self, words: torch.Tensor) -> int:
        return whole_blocks(words, self._shape.words)

    def _slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return memory for the slots of words, and for the sizes of their blocks."""
        blocks = self._blocks(words)
        slots = torch.empty(blocks * self._shape.slot, dtype=torch.uint8, device=self.device)
        return slots, torch.empty(blocks, dtype=torch.int32, device=self.device)

    def _count(self, contributions: torch.Tensor, words: torch.Tensor) -> int:
        """Return how many contributions have these slots."""
        size = self.slot_bytes(words.numel())
        count, rest = divmod(contributions.numel(), size) if size else (0, contributions.numel())
        if rest:
            raise ValueError(f"{contributions.numel()} bytes are not the slots of {words.numel()} words")
        return count

    def _launch(self, kernel: Any, words: torch.Tensor, **more: Any) -> None:
        """Run a kernel on all blocks of `words`."""
        if blocks := self._blocks(words):
            grid = (triton.cdiv(blocks, self._shape.tile),)
            given = {**more, **self._kernels.constants(kernel), **COMPILED}
            kernel[grid](words=words, tables=self._tables, blocks=blocks, **given)
