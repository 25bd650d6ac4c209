"""Compiles every kernel for a GPU that need not be there, and prints its fused instructions, loads and stores,
the instructions that exchange words between threads, its barriers, and its lines.

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
from softnic.torch.gpu import exact, kernels
from softnic.torch.gpu.bodies import place
from softnic.torch.gpu.codec import COMPILED, kernels_of, placing

POINTERS = {
    **dict.fromkeys(("words", "residual", "tables"), "*fp32"),
    **dict.fromkeys(("slots", "contributions", "body", "scratch", "malformed"), "*u8"),
    "sizes": "*i32",
    "ends": "*i64",
    "length": "i64",
    "blocks": "i32",
}
NAMES = ("rht:4", "bfp:7", "mx:e2m1", "truncate:16")
"""With all kernels."""
WIDTHS = ("rht:3", "rht:6", "bfp:15", "mx:e5m2", "truncate:8")
"""With those of the words' way to slots and back."""
KERNELS: Mapping[str, tuple[Any, Mapping[str, int]]] = {
    "encode": (kernels.encode, {}),
    "encode with residual": (kernels.encode_with_residual, {}),
    "decode": (kernels.decode, {}),
    "decode and add": (kernels.decode_and_add, {"COUNT": 1}),
    "decode a body": (kernels.decode_body, {"ADD": False}),
    "decode a body and add": (kernels.decode_body, {"ADD": True}),
    "encode and decode": (kernels.reduce, {"COUNT": 0, "DECODE": True}),
    "reduce": (kernels.reduce, {"COUNT": 3, "DECODE": False}),
    "reduce and decode": (kernels.reduce, {"COUNT": 3, "DECODE": True}),
}
COUNTED = {
    "ptx": {
        "fused": r"\bfma\.",
        "loads": r"\bld\.global",
        "stores": r"\bst\.global",
        "exchanges": r"\b(ld|st)\.shared|\bshfl\.|\b(ld|st)matrix\.",
        "barriers": r"\bbar\.sync",
    },
    "amdgcn": {
        "fused": r"\bv_(pk_)?(fma|mad|fmac)_f?\w*f32",
        "loads": r"\b(global|buffer)_load",
        "stores": r"\b(global|buffer)_store",
        "exchanges": r"\bds_\w+|_dpp\b",
        "barriers": r"\bs_barrier\b",
    },
}
"""Instructions; those that are fused round once where the codecs round twice."""


@triton.jit  # type: ignore[untyped-decorator]
def fusible(words, tables, blocks, M: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product and a sum that a compiler fuses if it may."""
    at = tl.arange(0, M)
    tl.store(words + at, tl.load(words + at) * tl.load(tables + at) + tl.load(tables + blocks + at))


def all_kernels() -> Iterator[tuple[str, Any, Mapping[str, Any], Mapping[str, str]]]:
    """Yield the name of each kernel, the kernel, its constants, and types that differ from POINTERS."""
    yield "fusible", fusible, {"M": 128}, {}
    for name in NAMES + WIDTHS:
        found = kernels_of(codecs.get(name))
        assert found is not None
        for action in KERNELS if name in NAMES else ("encode", "decode"):
            kernel, constants = KERNELS[action]
            yield f"{name} {action}", kernel, {**found.constants(kernel), **constants}, {}
        if found.shape.irregular:
            yield f"{name} place", place, placing(found.shape), {"words": "*u8"}
    for bits in (16, 32):
        for action in ("measure", "encode", "decode", "find"):
            kernel = getattr(exact, action)
            yield f"exact:{bits} {action}", kernel, {"BITS": bits}, {"elements": f"*i{bits}"}


def main(backend: str, architecture: str, fused: str = "") -> None:
    target = GPUTarget(
        backend, int(architecture) if backend == "cuda" else architecture, 32 if backend == "cuda" else 64
    )
    kind = "ptx" if backend == "cuda" else "amdgcn"
    for name, kernel, constants, types in [*all_kernels()][: 1 if fused else None]:
        arguments = {**POINTERS, **types}
        signature = {each: "constexpr" if each in constants else arguments[each] for each in kernel.arg_names}
        # Tensors begin at multiples of 16 bytes, as those that torch allocates.
        aligned = {(i,): [["tt.divisibility", 16]] for i, each in enumerate(signature.values()) if each[0] == "*"}
        source = ASTSource(fn=kernel, signature=signature, constexprs=dict(constants), attrs=aligned)
        options = {**COMPILED, "enable_fp_fusion": bool(fused)}
        assembly = triton.compile(source, target=target, options=options).asm[kind]
        counts = [f"{len(re.findall(pattern, assembly))} {what}" for what, pattern in COUNTED[kind].items()]
        print(f"{name}: {', '.join(counts)}, {len(assembly.splitlines())} lines", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
