"""Words that devices exchange without a codec, as elements of a type: exact sums in the place of encoded ones."""

from __future__ import annotations

import torch

from softnic.collectives import schedule


class Unencoded:
    """A SlotCodec (encoded.py) whose slots are the words as elements of `dtype`, to which they are rounded."""

    block_words = schedule.UNIT

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.word_bytes = dtype.itemsize
        self.slot = self.block_words * dtype.itemsize
        self.sizes = frozenset({self.slot})

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sizes = torch.full((words.numel() // self.block_words,), self.slot, dtype=torch.int32, device=words.device)
        return words.to(self._dtype).view(torch.uint8), sizes

    def decode_slots(self, slots: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        elements = slots.view(self._dtype)
        if add:
            words += elements
        else:
            words.copy_(elements)

    def encode_rounded(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        slots, sizes = self.encode_slots(words)
        self.decode_slots(slots, words)
        return slots, sizes

    def reduce_slots(
        self, contributions: torch.Tensor, words: torch.Tensor, *, decode: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = words if decode else words.clone()
        for slots in contributions:
            self.decode_slots(slots, total, add=True)
        return self.encode_rounded(total)

    def body_of(self, _words: torch.Tensor, slots: torch.Tensor, _sizes: torch.Tensor, _size: int) -> torch.Tensor:
        return slots

    def decode_sizes(self, body: torch.Tensor, _sizes: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        self.decode_slots(body, words, add=add)
