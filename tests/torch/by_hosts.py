"""A rank that sums in two levels, with gloo in NCCL's place, and compares the bits with the order that is documented.

Run by jobs.py. The argument is the file of torch's store. HOSTS lists the node of each rank, GPU is that of this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum

import softnic.torch
from softnic import codecs
from softnic.torch import device_items, hosts, local_nccl
from softnic.torch.backend import SoftnicGroup
from softnic.torch.local_sum import LocalSum
from tests.torch.on_device import bits, on_device, values

Tensor = torch.Tensor
COUNT = 70_001
"""Elements of a sum: no multiple of any block."""
FACTOR = 0.3
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_BLOCKS = {"": 16, "bfp:7": 16, "rht:4": 128}
"""Words of a block by codec; of none: the elements that shares are cut at."""


GLOO: list[Any] = []
"""The backends that are in NCCL's place."""


def gloo_backend(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Make what is in NCCL's place."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
    GLOO.append(dist.ProcessGroupGloo(store, rank, size, options))
    return GLOO[-1]


class Counted(LocalSum):
    """Counts the sums in two levels."""

    sums = 0

    def start(self, context: Any) -> None:
        Counted.sums += 1
        super().start(context)


@contextmanager
def on_gpus() -> Iterator[None]:
    """Have tensors be those of a GPU."""
    with on_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_nccl, "nccl_backend", gloo_backend)
        patch.setattr(hosts, "gpu_of", lambda _: os.environ["GPU"])
        patch.setattr(device_items, "LocalSum", Counted)
        yield


def rounded(words: Tensor, codec: str, dtype: torch.dtype) -> Tensor:
    """Return what words are after they have crossed the network."""
    if not codec:
        return words.to(dtype).to(torch.float32)
    by = codecs.get(codec)
    return torch.tensor(by.decode(by.encode(words.numpy()), words.numel()))


def expected(given: list[Tensor], codec: str, divisor: int | None) -> Tensor:
    """Return the sum of each rank's tensor in the order that docs/gpu.md has."""
    nodes = os.environ["HOSTS"].split()
    members = [[rank for rank in range(SIZE) if nodes[rank] == node] for node in dict.fromkeys(nodes)]
    dtype, count, number = given[0].dtype, given[0].numel(), len(members)
    unit = _BLOCKS[codec] * number
    share = -(-count // (unit * len(members[0]))) * unit
    rows = torch.zeros(SIZE, share * len(members[0]))
    for row, tensor in zip(rows, given, strict=True):
        row[:count] = tensor
    total = torch.empty_like(rows[0])
    for start in range(0, total.numel(), share // number):
        part = slice(start, start + share // number)
        of_hosts = []
        for first, *others in members:
            of_hosts.append(rows[first, part].clone())
            for rank in others:
                of_hosts[-1] += rows[rank, part]
        owner = start // (share // number) % number
        for step in range(1, number):
            of_hosts[owner] += rounded(of_hosts[(owner - step) % number], codec, dtype)
        if divisor is not None:
            of_hosts[owner] /= torch.tensor(float(divisor))
        total[part] = rounded(of_hosts[owner], codec, dtype)
    return total[:count].to(dtype)


def summed(codec: str, dtype: torch.dtype, op: Any, kind: str = "") -> list[tuple[Tensor, Tensor]]:
    """Return the result and what is expected."""
    result = values(COUNT, dtype, kind)
    dist.all_reduce(result, op)
    given = [values(COUNT, dtype, kind, rank) for rank in range(SIZE)]
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        given = [tensor.mul_(FACTOR) for tensor in given]
    return [(result, expected(given, codec, SIZE if op == dist.ReduceOp.AVG else None))]


def together(codec: str) -> list[tuple[Tensor, Tensor]]:
    """Several tensors, one of them strided, in one call, by the method of the hook of DistributedDataParallel."""
    counts = (30_000, 5, 50_001)
    tensors = [values(count, torch.float32) for count in counts]
    tensors.append(values(6000, torch.float32).view(60, 100).t())
    group = dist.group.WORLD
    assert isinstance(group, SoftnicGroup)
    group.sum_by_codec({codec or None: tensors}, tensors[0]).wait()
    given = []
    for rank in range(SIZE):
        rows = [values(count, torch.float32, rank=rank) for count in counts]
        given.append(torch.cat([*rows, values(6000, torch.float32, rank=rank).view(60, 100).t().reshape(-1)]))
    return [(torch.cat([tensor.reshape(-1) for tensor in tensors]), expected(given, codec, None))]


def many(codec: str) -> list[tuple[Tensor, Tensor]]:
    """Sums of different lengths in progress at a time, and among them some that do not go by hosts."""
    counts = (500_000, 20_000, 30, 70_000)
    tensors = [values(count, torch.float32) for count in counts]
    whole = [torch.arange(100_000) for _ in counts]
    works = [dist.all_reduce(each, async_op=True) for pair in zip(tensors, whole, strict=True) for each in pair]
    for work in works:
        work.wait()
    pairs = [(tensor, torch.arange(100_000) * SIZE) for tensor in whole]
    for count, tensor in zip(counts, tensors, strict=True):
        if count > 30:
            given = [values(count, torch.float32, rank=rank) for rank in range(SIZE)]
            pairs.append((tensor, expected(given, codec, None)))
    return pairs


def cases() -> Iterator[tuple[str, str, Callable[[], list[tuple[Tensor, Tensor]]]]]:
    """Yield the name, the codec and the call of each case."""
    scaled = _make_nccl_premul_sum(FACTOR)
    for codec in ("", "bfp:7", "rht:4"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            yield f"{codec} sum of {dtype}", codec, partial(summed, codec, dtype, dist.ReduceOp.SUM)
        for kind in ("zeros", "huge", "nan"):
            call = partial(summed, codec, torch.float32, dist.ReduceOp.SUM, kind)
            yield f"{codec} sum of {kind}", codec, call
        for name, op in (("mean", dist.ReduceOp.AVG), ("scaled", scaled)):
            yield f"{codec} {name}", codec, partial(summed, codec, torch.float32, op)
        yield f"{codec} together", codec, partial(together, codec)
        yield f"{codec} many", codec, partial(many, codec)


def other_calls() -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield calls that have the same bits whether sums go by hosts or not."""

    def reduced(tensor: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
        dist.all_reduce(tensor, op)
        return tensor

    yield "float64", lambda: reduced(values(COUNT, torch.float64))
    yield "short", lambda: reduced(values(1000, torch.float32))
    yield "maximum", lambda: reduced(values(COUNT, torch.float32), dist.ReduceOp.MAX)
    yield "integers", lambda: reduced(values(COUNT, torch.float32).view(torch.int32))


def plain() -> dict[str, bool]:
    """Return which sums have the bits that they have without hosts."""
    found = {}
    for codec in ("", "rht:4"):
        softnic.torch.compress(None, codec or None)
        first = values(COUNT, torch.float32)
        dist.all_reduce(first)
        with on_gpus():
            second = values(COUNT, torch.float32)
            dist.all_reduce(second)
        found[codec] = torch.equal(bits(first), bits(second))
    softnic.torch.compress(None)
    return found


def figures() -> tuple[float, float]:
    """Return the ratio of an exact sum of 16-bit floats, and how often this rank has sent each of its bytes.

    These are the group's figures, which count long messages.
    """
    with on_gpus(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_items, "LEAST_WORDS", 1 << 16)
        before = softnic.torch.stats()
        dist.all_reduce(values(1 << 20, torch.bfloat16))
        stats = softnic.torch.stats() - before
        return stats.ratio, stats.given_bytes / (2 << 20)


def ended(group: Any, limit_s: float = 60.0) -> tuple[str, float]:
    """Return the error of a sum, and after how many seconds it came."""
    began = time.monotonic()
    try:
        with on_gpus():
            work = dist.all_reduce(values(COUNT, torch.float32), group=group, async_op=True)
            work.wait(timedelta(seconds=limit_s))
    except dist.DistBackendError as error:
        return str(error), time.monotonic() - began
    return "", 0.0


def main(store: str) -> None:
    dist.init_process_group("softnic", init_method=f"file://{store}", rank=RANK, world_size=SIZE)
    found: dict[str, Any] = {"plain": plain(), "sums": Counted.sums}
    if not Counted.sums:
        print("RESULT", json.dumps(found))
        dist.destroy_process_group()
        return
    for name, codec, call in cases():
        softnic.torch.compress(None, codec or None)
        before = Counted.sums
        with on_gpus():
            pairs = call()
        same = [torch.equal(bits(result), bits(right)) for result, right in pairs]
        digest = hashlib.sha256(b"".join(bits(result).numpy().tobytes() for result, _ in pairs)).hexdigest()
        found[name] = {"expected": all(same), "by hosts": Counted.sums > before, "bits": digest}
    softnic.torch.compress(None)
    for name, reduce in other_calls():
        right, before = reduce(), Counted.sums
        with on_gpus():
            result = reduce()
        found[f"other {name}"] = [torch.equal(bits(result), bits(right)), Counted.sums == before]
    found |= {"gloo": len(GLOO), "figures": figures()}
    late, nodes = dist.new_group(), os.environ["HOSTS"].split()
    with on_gpus():
        dist.all_reduce(values(COUNT, torch.float32), group=late)
    if RANK < SIZE - 1:
        found["late"], _ = ended(late, limit_s=1 if nodes[RANK] == nodes[-1] else 60)
    dist.barrier()
    print("RESULT", json.dumps(found), flush=True)
    if RANK == SIZE - 1:
        os._exit(1)
    error, seconds = ended(None)
    print("RESULT", json.dumps({"error": error, "seconds": seconds}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
