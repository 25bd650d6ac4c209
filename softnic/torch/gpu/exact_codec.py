"""The codec exact on a device: bodies of tensors, byte for byte those of softnic.codecs."""

from __future__ import annotations

from typing import Any

import torch
import triton

from softnic import codecs
from softnic.torch.gpu.codec import COMPILED, whole_blocks
from softnic.torch.gpu.exact import TILE, decode, encode, find, measure

_BLOCK_WORDS = 128
_BLOCK_BYTES = 4 * _BLOCK_WORDS
_TYPES = {16: torch.int16, 32: torch.int32}


class DeviceExact:
    """exact:16 or exact:32 where tensors are. Raises ValueError for another codec."""

    def __init__(self, codec: codecs.Codec, device: torch.device) -> None:
        if codec.name != "exact":
            raise ValueError(f"{codec} is not exact")
        self.codec, self.device = codec, device
        self.block_words, self.word_bytes, self.slot = _BLOCK_WORDS, 4, 0
        elements = 32 * _BLOCK_WORDS // codec.parameter
        self.sizes = frozenset(range(1 + elements // 4 + _BLOCK_BYTES - elements, 1 + _BLOCK_BYTES + 1))
        """That blocks may have in a body."""

    # Blocks: nothing waits for the device. The names are those of DeviceCodec; there are no slots.

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return nothing, and the size that each block of words will have in a body."""
        sizes = torch.empty(whole_blocks(words, _BLOCK_WORDS), dtype=torch.int32, device=self.device)
        self._launch(measure, sizes.numel(), self._view(words), sizes, sizes.numel())
        return torch.empty(0, dtype=torch.uint8, device=self.device), sizes

    encode_rounded = encode_slots

    def body_of(self, words: torch.Tensor, _slots: torch.Tensor, sizes: torch.Tensor, size: int) -> torch.Tensor:
        """Return the body of words, whose blocks have these sizes, `size` together."""
        ends = torch.cumsum(sizes, 0, dtype=torch.int64)
        body = torch.empty(size, dtype=torch.uint8, device=self.device)
        elements = self._view(words)
        scratch = torch.empty(elements.numel(), dtype=torch.uint8, device=self.device)
        self._launch(encode, sizes.numel(), elements, body, ends, scratch, sizes.numel())
        return body

    def decode_sizes(self, body: torch.Tensor, sizes: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode a body whose blocks have these sizes to words. A malformed one gives some words."""
        assert not add, "weights are copied"
        self._decode(body, torch.cumsum(sizes, 0, dtype=torch.int64), words)

    # Bodies

    def encode(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the body of words, and the size of each block in it.

        `words` are float32, whole blocks of 128; tensors of other types are viewed as such. Where the sizes travel with
        the body, `decode` need not search for them.
        """
        nothing, sizes = self.encode_slots(words)
        return self.body_of(words, nothing, sizes, int(sizes.sum())), sizes

    def decode(self, body: torch.Tensor, words: torch.Tensor, sizes: torch.Tensor | None = None) -> None:
        """Decode a body to float32 words, whole blocks. Raises DecodeError if it is malformed, or has other sizes.

        Without the sizes of the blocks one program searches the body for them, which takes much longer than decoding.
        """
        blocks = whole_blocks(words, _BLOCK_WORDS)
        if sizes is None:
            sizes = torch.empty(blocks, dtype=torch.int32, device=self.device)
            self._launch(find, TILE.value if blocks else 0, body, sizes, body.numel(), blocks)
        elif sizes.numel() != blocks:
            raise ValueError(f"{sizes.numel()} sizes go with {blocks} blocks")
        ends = torch.cumsum(sizes, 0, dtype=torch.int64)
        malformed = self._decode(body, ends, words)
        length = int(ends[-1]) if blocks else 0
        if length != body.numel() or bool(malformed.any()):
            raise codecs.DecodeError(f"{body.numel()} bytes are not a {self.codec} encoding of {words.numel()} words")

    def _decode(self, body: torch.Tensor, ends: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Decode a body to words. Returns for each block whether it is malformed."""
        malformed = torch.empty(ends.numel(), dtype=torch.uint8, device=self.device)
        self._launch(decode, ends.numel(), body, self._view(words), ends, malformed, body.numel(), ends.numel())
        return malformed

    def _view(self, words: torch.Tensor) -> torch.Tensor:
        dtype = _TYPES[self.codec.parameter]
        return words.view(dtype) if words.numel() else words.to(dtype)  # NumPy's empty arrays have no stride

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Run a kernel on the blocks of its arguments, whose number is given first."""
        if blocks:
            kernel[(triton.cdiv(blocks, TILE.value),)](*arguments, BITS=self.codec.parameter, **COMPILED)
