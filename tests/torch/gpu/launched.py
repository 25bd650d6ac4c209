"""Calls the codecs as if tensors were on a GPU that need not be there: kernels are compiled as by a call, and not run.

python -m tests.torch.gpu.launched 80 | 90

Prints the name of each kernel that is compiled, with its grid.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from softnic import codecs
from softnic.torch.gpu.codec import DeviceCodec
from softnic.torch.gpu.exact_codec import DeviceExact

CPU = torch.device("cpu")


class Driver:
    """The driver of one GPU that is never used."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target


def call_all(blocks: int) -> None:
    """Call what launches kernels, for tensors of `blocks` blocks: an integer of 1 is a constant to the compiler."""
    for name in ("rht:4", "truncate:16"):
        codec = DeviceCodec(codecs.get(name), CPU)
        words = torch.zeros(blocks * codec.block_words)
        slots, sizes = codec.encode_slots(words)
        codec.encode_slots(words, residual=words.clone())
        codec.decode_slots(slots, words)
        codec.decode_slots(slots, words, add=True)
        codec.reduce_slots(torch.cat([slots, slots]), words)
        codec.reduce_slots(torch.cat([slots, slots]), words, decode=True)
        codec.encode_rounded(words)
        codec.body(slots, sizes.fill_(1), words)
        for add in (False, True):
            codec.decode_sizes(slots, sizes, words, add=add)
    for name in ("exact:16", "exact:32"):
        exact = DeviceExact(codecs.get(name), CPU)
        words = torch.zeros(blocks * exact.block_words)
        _, sizes = exact.encode(words)
        exact.decode_sizes(torch.zeros(400 * blocks, dtype=torch.uint8), sizes, words)
        for length in (1, 400 * blocks):
            with contextlib.suppress(codecs.DecodeError):
                exact.decode(torch.zeros(length, dtype=torch.uint8), words)


def main(architecture: str) -> None:
    run = JITFunction.run

    def compile_only(kernel: Any, *arguments: Any, grid: Any, **more: Any) -> Any:
        print(f"{kernel.__name__} {grid[0]}", flush=True)
        return run(kernel, *arguments, grid=grid, **{**more, "warmup": True})

    driver.set_active(Driver(int(architecture)))
    # Ones are what kernels would have written: sizes of blocks are used.
    with mock.patch.object(torch, "empty", torch.ones), mock.patch.object(JITFunction, "run", compile_only):
        for blocks in (1, 200):
            call_all(blocks)


if __name__ == "__main__":
    main(*sys.argv[1:])
