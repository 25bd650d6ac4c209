"""What a GPU does by itself: `python -m benchmarks.gpu.device` reports copies and kernels, one line of JSON each."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch

from softnic import codecs
from softnic.ipc import regions
from softnic.measure.child_process import report_json
from softnic.torch.devices import CudaStreams

WORDS = 25 << 20
"""100 MiB of floats."""
ROUNDS, CALLS = 7, 10
CODECS = ("rht:3", "rht:4", "rht:6", "bfp:7", "mx:e4m3", "mx:e2m1", "truncate:16", "exact:16", "exact:32")
CONTRIBUTIONS = 3


def gb_s(size: int, work: Callable[[], object]) -> float:
    """Return the rate of work on `size` bytes: the median of rounds of some calls each, by the GPU's own clock."""
    work()
    rates: list[float] = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(CALLS):
            work()
        end.record()
        end.synchronize()
        rates.append(CALLS * size / begin.elapsed_time(end) / 1e6)
    return statistics.median(rates)


def copies() -> Iterator[tuple[str, float]]:
    """Yield what is copied from where to where, and the rate."""
    here, there = torch.randn(WORDS, device="cuda"), torch.empty(WORDS, device="cuda")
    size = 4 * WORDS
    yield "GPU to GPU", gb_s(size, lambda: there.copy_(here))
    registered = regions.empty(WORDS)
    CudaStreams.lock_pages(torch.device("cuda", 0), registered)
    kinds = {
        "pageable": torch.empty(WORDS),
        "pinned": torch.empty(WORDS, pin_memory=True),
        "registered": torch.from_numpy(registered),
    }
    for kind, memory in kinds.items():
        yield f"GPU to {kind} memory", gb_s(size, partial(memory.copy_, here, non_blocking=True))
        yield f"{kind} memory to GPU", gb_s(size, partial(there.copy_, memory, non_blocking=True))


def kernels() -> Iterator[tuple[str, float]]:
    """Yield the codec and what it does, and the rate in bytes of floats."""
    from softnic.torch.gpu.codec import DeviceCodec  # imports Triton

    device, size = torch.device("cuda", 0), 4 * WORDS
    words, total = torch.randn(WORDS, device=device) * 1e-3, torch.zeros(WORDS, device=device)
    for name in CODECS:
        codec = DeviceCodec(codecs.get(name), device)
        slots, sizes = codec.encode_slots(words)
        yield f"{name} encode", gb_s(size, partial(codec.encode_slots, words))
        if codec.slot:
            yield f"{name} decode", gb_s(size, partial(codec.decode_slots, slots, total))
            yield f"{name} decode and add", gb_s(size, partial(codec.decode_slots, slots, total, add=True))
            several = torch.stack([slots] * CONTRIBUTIONS)
            what = f"{name} decode {CONTRIBUTIONS}, add, encode"
            yield what, gb_s(size, partial(codec.reduce_slots, several, total))
        else:
            body = codec.body_of(words, slots, sizes, int(sizes.sum()))
            yield f"{name} decode", gb_s(size, partial(codec.decode_sizes, body, sizes, total))


def main() -> int:
    for kind, found in (("copy", copies()), ("kernel", kernels())):
        for what, rate in found:
            report_json(kind=kind, what=what, gb_s=rate)
    report_json(name=torch.cuda.get_device_name(), torch=torch.__version__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
