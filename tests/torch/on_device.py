"""A rank that makes each call twice, on the host and on a stand-in for a GPU, and compares the bits of the results.

Run by jobs.py. The argument is the file of torch's store. With ON_KERNELS in the environment, the codecs are those of
softnic.torch.gpu, which take long in Triton's interpreter: only some cases are run, of few elements.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum

import softnic.torch
from softnic import MPI, codecs
from softnic.torch import backend, device_items
from softnic.torch.device_codecs import device_codec
from softnic.torch.encoded import SlotCodec
from tests.torch.host_slots import HostSlots
from tests.torch.stand_in import on_stand_in

Tensor = torch.Tensor
ON_KERNELS = "ON_KERNELS" in os.environ
COUNT = 8_209 if ON_KERNELS else 40_007
"""Elements of a rank's part, about: no multiple of any block."""

LONG = 1 << 18
"""Elements whose encoding is no message that goes with control messages."""


class CountedSlots(HostSlots):
    """Counts the blocks that are encoded and decoded."""

    blocks = 0

    def _blocks(self, words: Tensor) -> tuple[Tensor, ...]:
        found = super()._blocks(words)
        CountedSlots.blocks += len(found)
        return found


@contextmanager
def on_device() -> Iterator[None]:
    """Have tensors be the stand-in's, with short pieces, and codecs those of host_slots.py."""

    def codec_of(name: str, device: torch.device) -> SlotCodec:
        if not ON_KERNELS:
            return CountedSlots(codecs.get(name))
        found = device_codec(name, device)
        assert found is not None
        return found

    with on_stand_in(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "device_codec", codec_of)
        patch.setattr(device_items, "LEAST_WORDS", COUNT // 5)
        patch.setattr(device_items, "PIECE_BYTES", 1 << 16)
        yield


def values(count: int, dtype: torch.dtype, kind: str = "", rank: int | None = None) -> Tensor:
    """Return elements of a rank, by default this one; some blocks of them are of zeros, or have huge words or NaNs."""
    generator = torch.Generator().manual_seed(dist.get_rank() if rank is None else rank)
    found = torch.randn(count, generator=generator) * 1e-3
    if kind:
        found[1000:3000] = 0
        found[5000] = {"zeros": 0.0, "huge": 3e37, "nan": float("nan")}[kind]
        found[9000:9100] *= {"zeros": 0.0, "huge": 1e-42, "nan": float("inf")}[kind]
    return found.to(dtype)


def summed(dtype: torch.dtype, op: Any, kind: str = "") -> list[Tensor]:
    tensor = values(dist.get_world_size() * COUNT, dtype, kind)
    dist.all_reduce(tensor, op)
    return [tensor]


def summed_together() -> list[Tensor]:
    """Several tensors, one of them strided, in one call."""
    tensors = [values(count, torch.float32) for count in (30_000, 5, 50_001)]
    tensors.append(values(60_000, torch.float32).view(200, 300).t())
    dist.all_reduce_coalesced(tensors)
    return tensors


def many() -> list[Tensor]:
    """Calls of different kinds in progress at a time."""
    size = dist.get_world_size()
    tensors = [values(size * COUNT + more, torch.float32) for more in range(4)]
    others = [values(200, torch.float32), torch.arange(100)]
    works = [dist.all_reduce(tensor, async_op=True) for pair in zip(tensors, others, strict=False) for tensor in pair]
    works += [dist.all_reduce(tensor, async_op=True) for tensor in tensors[2:]]
    for work in works:
        work.wait()
    return [*tensors, *others]


def scattered(dtype: torch.dtype, op: Any, more: int) -> list[Tensor]:
    """`more`: elements of each rank's part beyond those of the rank before it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [values(COUNT + more * each, dtype) for each in range(size)]
    output = torch.zeros(COUNT + more * rank, dtype=dtype)
    dist.reduce_scatter(output, parts, op)
    whole = torch.zeros(COUNT, dtype=dtype)
    dist.reduce_scatter_tensor(whole, values(size * COUNT, dtype), op)
    return [output, whole]


def gathered(dtype: torch.dtype) -> list[Tensor]:
    size, given = dist.get_world_size(), values(COUNT + 1, dtype)
    row, parts = given.new_zeros(size * given.numel()), [torch.zeros_like(given) for _ in range(size)]
    dist.all_gather_into_tensor(row, given)
    dist.all_gather(parts, given)
    return [row, *parts]


def broadcast(dtype: torch.dtype) -> list[Tensor]:
    first, second = values(2 * COUNT + 2, dtype), values(400 * 300, dtype).view(300, 400).t()
    dist.broadcast(first, 0)
    dist.broadcast(second, dist.get_world_size() - 1)
    return [first, second]


def cases() -> Iterator[tuple[str, dict[str, Any], Callable[[], list[Tensor]]]]:
    """Yield the name, the compression and the calls of each case."""
    scaled = _make_nccl_premul_sum(0.3)
    for codec in ("rht:4", "bfp:7"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            for name, op in (("sum", dist.ReduceOp.SUM), ("mean", dist.ReduceOp.AVG), ("scaled", scaled)):
                yield f"{codec} {name} of {dtype}", {"codec": codec}, partial(summed, dtype, op)
        for kind in ("zeros", "huge", "nan"):
            for name, op in (("sum", dist.ReduceOp.SUM), ("mean", dist.ReduceOp.AVG)):
                call = partial(summed, torch.float32, op, kind)
                yield f"{codec} {name} of {kind}", {"codec": codec}, call
        yield f"{codec} several", {"codec": codec}, summed_together
        for more in (0, 7):
            for name, op in (("sum", dist.ReduceOp.SUM), ("mean", dist.ReduceOp.AVG)):
                call = partial(scattered, torch.float32, op, more)
                yield f"{codec} scattered {name}, {more} more", {"codec": codec}, call
        yield f"{codec} scattered bfloat16", {"codec": codec}, partial(scattered, torch.bfloat16, dist.ReduceOp.SUM, 0)
    yield "rht:4 many", {"codec": "rht:4"}, many
    yield "exact many", {}, many
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        yield f"exact sum of {dtype}", {}, partial(summed, dtype, dist.ReduceOp.SUM)
        yield f"exact scattered {dtype}", {}, partial(scattered, dtype, dist.ReduceOp.SUM, 3)
    yield "exact mean", {}, partial(summed, torch.float32, dist.ReduceOp.AVG)
    for weights, dtype in (
        (None, torch.bfloat16),
        ("exact:16", torch.bfloat16),
        ("exact:32", torch.float32),
        ("bfp:7", torch.float32),
        ("bfp:7", torch.bfloat16),
    ):
        yield f"{weights} gathered {dtype}", {"weights": weights}, partial(gathered, dtype)
        yield f"{weights} broadcast {dtype}", {"weights": weights}, partial(broadcast, dtype)


def cases_of_kernels() -> Iterator[tuple[str, dict[str, Any], Callable[[], list[Tensor]]]]:
    """Yield a case of each codec with kernels, and of each kind of call."""
    add, mean = dist.ReduceOp.SUM, dist.ReduceOp.AVG
    yield "rht:4 mean of nan", {"codec": "rht:4"}, partial(summed, torch.float32, mean, "nan")
    yield "bfp:7 sum of zeros", {"codec": "bfp:7"}, partial(summed, torch.float32, add, "zeros")
    yield "mx:e2m1 sum", {"codec": "mx:e2m1"}, partial(summed, torch.float32, add)
    yield "truncate:8 scattered", {"codec": "truncate:8"}, partial(scattered, torch.float32, add, 7)
    yield "exact:16 gathered", {"weights": "exact:16"}, partial(gathered, torch.bfloat16)
    yield "exact:32 broadcast", {"weights": "exact:32"}, partial(broadcast, torch.float32)


def main(store: str) -> None:
    world = MPI.COMM_WORLD
    dist.init_process_group("softnic", init_method=f"file://{store}", rank=world.rank, world_size=world.size)
    found = {}
    for name, compression, calls in cases_of_kernels() if ON_KERNELS else cases():
        softnic.torch.compress(None, **compression)
        expected = calls()
        CountedSlots.blocks = 0
        with on_device():
            given = calls()
        same = [torch.equal(bits(a), bits(b)) for a, b in zip(expected, given, strict=True)]
        found[name] = {"same bits": all(same), "blocks": CountedSlots.blocks}
    print("RESULT", json.dumps(found))
    if not ON_KERNELS:
        print("RESULT", json.dumps({"ratio": _ratio()}))
    dist.destroy_process_group()


def _ratio() -> float:
    """Return the ratio of a compressed sum on the device, of long messages, as the group's figures have it."""
    softnic.torch.compress(None, "rht:4")
    with on_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_items, "LEAST_WORDS", LONG)
        dist.all_reduce(values(dist.get_world_size() * LONG, torch.float32))
        before = softnic.torch.stats()
        dist.all_reduce(values(dist.get_world_size() * LONG, torch.float32))
        return (softnic.torch.stats() - before).ratio


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


if __name__ == "__main__":
    main(sys.argv[1])
