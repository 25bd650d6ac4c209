"""What reductions cost, what fusing them with codecs saves, and what several threads save.

python -m benchmarks.reduce [--codec bounded:10 ...] [--megabytes 16] [--threads 2] [--rounds 5] [--json FILE]

Every figure stands beside memcpy of the result's bytes and beside what it may replace, all measured in turn: numpy's
ufunc, the same calls one after the other, one thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from softnic import codecs
from softnic.bench import inputs
from softnic.bench.codec import default_codecs
from softnic.codecs.combine import (
    BFLOAT16,
    ReduceOp,
    combine,
    combine_encode,
    combine_roundtrip,
    decode_combine,
    narrow,
)
from softnic.codecs.threads import at_most, threads
from softnic.measure import timing
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns, share

SLICE_S = 0.03
RING_BYTES = 1 << 17
"""What the ring combines at a time."""
NUMPY = {ReduceOp.SUM: np.add, ReduceOp.PROD: np.multiply, ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum}


@dataclass(frozen=True)
class Case:
    work: str
    elements: str
    """A type, or the codec of float32."""
    size_bytes: int
    """Of the result."""
    ours: timing.Work
    beside: str
    """What `others` is."""
    others: timing.Work


@dataclass(frozen=True)
class Row:
    work: str = column("work")
    elements: str = column("of")
    kilobytes: float = column("KB", ",.0f")
    gb_per_s: float = column("GB/s")
    of_memcpy: float = column("of memcpy", share)
    times: float = column("speed")
    """Speed as a multiple of that of what stands beside it."""
    beside: str = column("of that of")


def reductions(size_bytes: int) -> Iterator[Case]:
    """The C's loops beside numpy's."""
    for name in ("float16", "float32", "float64", "int32", "int64", "uint8"):
        rng, dtype = np.random.default_rng(1), np.dtype(name)
        left, right = (rng.integers(0, 100, size_bytes // dtype.itemsize).astype(dtype) for _ in range(2))
        for operation in ReduceOp:
            yield _reduction(operation, name, left, right)
    yield _bfloat16_sum(size_bytes)


def _bfloat16_sum(size_bytes: int) -> Case:
    """numpy has no such type: beside its float16."""
    left, right = np.split(inputs.floats("gaussian:0.01", size_bytes), 2)
    a, b = (narrow(floats, np.empty(floats.size, BFLOAT16)) for floats in (left, right))
    other_a, other_b = left.astype(np.float16), right.astype(np.float16)
    out, other_out = np.empty_like(a), np.empty_like(other_a)
    return Case(
        "sum",
        "bfloat16",
        a.nbytes,
        lambda: combine(ReduceOp.SUM, a, b, out),
        "numpy's float16",
        lambda: np.add(other_a, other_b, out=other_out),
    )


def _reduction(operation: ReduceOp, name: str, left: npt.NDArray[np.generic], right: npt.NDArray[np.generic]) -> Case:
    out, ufunc = np.empty_like(left), NUMPY[operation]
    return Case(
        operation.name.lower(),
        name,
        left.nbytes,
        lambda: combine(operation, left, right, out),
        "numpy",
        lambda: ufunc(left, right, out=out),
    )


def fused(codec: codecs.Codec, size_bytes: int) -> Iterator[Case]:
    """Sums fused with a codec beside numpy's sum and the codec one after the other."""
    left, right = np.split(inputs.floats("gaussian:0.01", 2 * (size_bytes // 4)), 2)
    body, out, scratch = codec.encode(left), np.empty_like(left), np.empty_like(left)

    def decode_then_add() -> None:
        codec.decode_into(body, scratch)
        np.add(scratch, right, out=out)

    def add_then_round() -> None:
        codec.roundtrip(np.add(left, right, out=out), out)

    def add_then_encode() -> bytes:
        return codec.encode(np.add(left, right, out=scratch))

    total, apart = ReduceOp.SUM, "one after the other"
    size = left.nbytes
    yield Case(
        "decode and sum", str(codec), size, lambda: decode_combine(codec, body, total, right, out), apart,
        decode_then_add,
    )  # fmt: skip
    yield Case(
        "sum and round trip", str(codec), size, lambda: combine_roundtrip(codec, total, left, right, out), apart,
        add_then_round,
    )  # fmt: skip
    yield Case(
        "sum and encode", str(codec), size, lambda: combine_encode(codec, total, left, right), apart, add_then_encode
    )


def threaded(codec: codecs.Codec, size_bytes: int, number: int) -> Iterator[Case]:
    """Several threads beside one."""
    words = inputs.floats("gaussian:0.01", size_bytes // 4)
    room, back = np.empty(codec.bound(words.size), np.uint8), np.empty_like(words)
    body = codec.encode(words)
    works: dict[str, timing.Work] = {
        "encode": lambda: codec.encode_into(words, room),
        "decode": lambda: codec.decode_into(body, back),
        "round trip": lambda: codec.roundtrip(words, back),
    }
    for name, work in works.items():
        yield _by_threads(name, str(codec), words.nbytes, number, work)


def threaded_sum(size_bytes: int, number: int) -> Iterator[Case]:
    left, right = np.split(inputs.floats("gaussian:0.01", 2 * (size_bytes // 4)), 2)
    out = np.empty_like(left)
    yield _by_threads("sum", "float32", left.nbytes, number, lambda: combine(ReduceOp.SUM, left, right, out))


def _by_threads(name: str, elements: str, size_bytes: int, number: int, work: timing.Work) -> Case:
    def several() -> None:
        with at_most(number):
            work()

    return Case(f"{name}, {number} threads", elements, size_bytes, several, "one thread", work)


def _pages(size_bytes: int, offset: int) -> npt.NDArray[np.uint8]:
    """Memory at an offset into a page: copying a little upwards, seen within a page, is slow on some machines."""
    memory = np.ones(size_bytes + 8192, np.uint8)
    start = -memory.ctypes.data % 4096 + offset
    return memory[start : start + size_bytes]


def run(case: Case, rounds: int) -> Row:
    source, copy = _pages(case.size_bytes, 0), _pages(case.size_bytes, 2048)
    with at_most(1):
        taken = timing.alternate(
            {"memcpy": lambda: np.copyto(copy, source), "ours": case.ours, "others": case.others}, rounds, SLICE_S
        )
    return Row(
        case.work,
        case.elements,
        case.size_bytes / 1e3,
        case.size_bytes / timing.median(taken["ours"]) / 1e9,
        timing.ratio(taken["memcpy"], taken["ours"]),
        timing.ratio(taken["others"], taken["ours"]),
        case.beside,
    )


def cases(chosen: list[codecs.Codec], large_bytes: int, number: int) -> Iterator[Case]:
    for size in (RING_BYTES, large_bytes):
        yield from reductions(size)
        for codec in chosen:
            yield from fused(codec, size)
    for codec in chosen:
        yield from threaded(codec, large_bytes, number)
    yield from threaded_sum(large_bytes, number)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--codec", nargs="+", type=codecs.get, default=[codecs.get(name) for name in default_codecs()])
    parser.add_argument("--megabytes", type=float, default=16, help="of the large results (16)")
    parser.add_argument("--threads", type=int, default=threads(), help="beside one (the cores)")
    harness.add_rounds(parser, 5)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Row]]:
    large_bytes = round(given.megabytes * 1e6) // 64 * 64
    made = (run(case, given.rounds) for case in cases(given.codec, large_bytes, given.threads))
    rows = as_measured(made, columns(Row), progress)
    title = f"GB/s of results, {codecs.simd()} kernels; shares of memcpy and speeds are medians of the same rounds"
    settings = {"megabytes": given.megabytes, "threads": given.threads, "rounds": given.rounds}
    return [MeasurementReport("benchmarks.reduce", title, columns(Row), rows, settings)]


if __name__ == "__main__":
    sys.exit(harness.main("reduce", __doc__, measured, add_options))
