"""The slots of softnic.torch.gpu for tensors of the host, by the codecs of the host, a block at a time."""

from __future__ import annotations

import numpy as np
import torch

from softnic import codecs

_SHAPES = {"rht": (128, 2, 16, {2, 514}), "bfp": (16, 3, 2, {1, 65})}
"""Words of a block, bytes of its slot, the more for each unit of the codec's parameter, and other sizes of blocks."""


class HostSlots:
    """As softnic.torch.gpu.codec.DeviceCodec, for rht, bfp and exact."""

    word_bytes = 4

    def __init__(self, codec: codecs.Codec) -> None:
        self._codec = codec
        if codec.name == "exact":
            self.block_words, self.slot, self.sizes = 128, 0, frozenset(range(1, 514))
            self._slot = 513
        else:
            self.block_words, fixed, more, others = _SHAPES[codec.name]
            self.slot = self._slot = fixed + more * codec.parameter
            self.sizes = frozenset({self.slot, *others})

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        bodies = [self._codec.encode(block.numpy()) for block in self._blocks(words)]
        slots = torch.zeros(len(bodies), self._slot, dtype=torch.uint8)
        for slot, body in zip(slots, bodies, strict=True):
            kept = np.frombuffer(body, np.uint8)[: self._slot]
            slot[: kept.size] = torch.from_numpy(kept.copy())
        return slots.view(-1), torch.tensor([len(body) for body in bodies], dtype=torch.int32)

    def decode_slots(self, slots: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        self._decode(slots.view(-1, self._slot).unbind(), words, add=add)

    def body_of(self, words: torch.Tensor, slots: torch.Tensor, sizes: torch.Tensor, size: int) -> torch.Tensor:
        slot = slots.view(-1, self._slot)
        bodies = []
        for index, block in enumerate(self._blocks(words)):
            body = self._codec.encode(block.numpy())
            assert len(body) == int(sizes[index])
            kept = min(len(body), self._slot) if len(body) <= self._slot else 1
            assert bytes(slot[index, :kept].numpy()) == body[:kept]
            bodies.append(body)
        joined = b"".join(bodies)
        assert len(joined) == size
        return torch.frombuffer(bytearray(joined), dtype=torch.uint8)

    def decode_sizes(self, body: torch.Tensor, sizes: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        self._decode(torch.split(body, sizes.tolist()), words, add=add)

    def encode_rounded(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = self.encode_slots(words)
        decoded = self._codec.decode(self._codec.encode(words.numpy()), words.numel())
        words.copy_(torch.from_numpy(np.array(decoded)))
        return encoded

    def reduce_slots(
        self, contributions: torch.Tensor, words: torch.Tensor, *, decode: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = words if decode else words.clone()
        for slots in contributions:
            self.decode_slots(slots, total, add=True)
        return self.encode_rounded(total)

    def _blocks(self, words: torch.Tensor) -> tuple[torch.Tensor, ...]:
        assert words.dtype == torch.float32
        assert words.is_contiguous()
        assert words.numel() % self.block_words == 0
        return words.view(-1, self.block_words).unbind()

    def _decode(self, bodies: tuple[torch.Tensor, ...], words: torch.Tensor, *, add: bool) -> None:
        for body, block in zip(bodies, self._blocks(words), strict=True):
            decoded = torch.from_numpy(np.array(self._codec.decode(body.numpy().tobytes(), self.block_words)))
            if add:
                block += decoded
            else:
                block.copy_(decoded)
