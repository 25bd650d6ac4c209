"""Compiles every kernel for a GPU that need not be there, and prints the fused instructions and the size of each.

python -m tests.torch.gpu.compiled cuda 80 | cuda 90 | hip gfx942 [fused]

With a last argument it is one kernel, in which the compiler may fuse a product with a sum.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from softnic import codecs
from softnic.torch.gpu.bodies import place
from softnic.torch.gpu.codec import COMPILED, kernels_of, placing, tile_blocks

POINTERS = {
    **dict.fromkeys(("words", "thresholds", "levels"), "*fp32"),
    **dict.fromkeys(("slots", "body"), "*u8"),
    **dict.fromkeys(("sizes", "signs"), "*i32"),
    "ends": "*i64",
    "blocks": "i32",
}
NAMES = ("rht:3", "rht:4", "rht:6", "bfp:7", "bfp:15", "mx:e5m2", "mx:e2m1", "truncate:8", "truncate:16")
FUSED = {"ptx": r"\bfma\.", "amdgcn": r"\bv_(pk_)?(fma|mad|fmac)_f?\w*f32"}
"""Instructions that round once where the codecs round twice."""


@triton.jit  # type: ignore[untyped-decorator]
def fusible(words, levels, blocks, M: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product and a sum that a compiler fuses if it may."""
    at = tl.arange(0, M)
    tl.store(words + at, tl.load(words + at) * tl.load(levels + at) + tl.load(levels + blocks + at))


def kernels() -> Iterator[tuple[str, Any, Mapping[str, int], Mapping[str, str]]]:
    """Yield the name of each kernel, the kernel, its constants, and types that differ from POINTERS."""
    yield "fusible", fusible, {"M": 128}, {}
    for name in NAMES:
        found = kernels_of(codecs.get(name))
        assert found is not None
        shape = {**found.constants, "M": tile_blocks(found)}
        yield f"{name} encode", found.module.encode, shape, {}
        for add in (False, True):
            yield f"{name} decode{' and add' * add}", found.module.decode, {**shape, "ADD": add}, {}
        if found.header:
            yield f"{name} place", place, placing(found), {"words": "*u8"}


def main(backend: str, architecture: str, fused: str = "") -> None:
    target = GPUTarget(
        backend, int(architecture) if backend == "cuda" else architecture, 32 if backend == "cuda" else 64
    )
    kind = "ptx" if backend == "cuda" else "amdgcn"
    for name, kernel, constants, types in [*kernels()][: 1 if fused else None]:
        signature = {
            each: "constexpr" if each in constants else {**POINTERS, **types}[each] for each in kernel.arg_names
        }
        source = ASTSource(fn=kernel, signature=signature, constexprs=dict(constants))
        assembly = triton.compile(source, target=target, options={**COMPILED, "enable_fp_fusion": bool(fused)}).asm[
            kind
        ]
        print(f"{name}: {len(re.findall(FUSED[kind], assembly))} fused, {len(assembly.splitlines())} lines", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
