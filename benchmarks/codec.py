"""What is inside `softnic bench codec`: round trips, frame by frame, and one implementation beside another.

python -m benchmarks.codec [--codec bounded:10 ...] [--simd scalar avx2] [--megabytes 16] [--rounds 5] [--json FILE]

`frames` encodes as the NIC does: into the room of one 1500-byte frame after the other. `encode`, `decode` and
`roundtrip` are of the whole array, on one core as well.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from softnic import codecs
from softnic._native import ffi, lib
from softnic.bench import inputs
from softnic.bench.codec import default_codecs
from softnic.codecs.kernels import simd_select
from softnic.codecs.threads import at_most
from softnic.measure import timing
from softnic.measure.progress import as_measured
from softnic.measure.report import Column, MeasurementReport, Progress, figure, share

Floats = npt.NDArray[np.float32]
FRAME_BODY_BYTES = 1500 - 40 - 12 - lib.SN_PAYLOAD_HEADER
"""An IPv4 packet less its headers, timestamps and the payload header."""
DATA = ("gaussian:0.01", "gaussian:0.001", "sparse:0.02", "gaussian:100")
"""Gradients early and late in training, one of mostly zeros, and words that do not shrink."""
KINDS = ("encode", "decode", "roundtrip", "frames")
SLICE_S = 0.05


@dataclass(frozen=True)
class Row:
    codec: str
    simd: str
    data: str
    ratio: float
    """Bytes before to bytes after."""
    memcpy_gb_per_s: float
    gb_per_s: dict[str, float]
    of_memcpy: dict[str, float]


def encode_frames(codec: codecs.Codec, words: Floats, out: npt.NDArray[np.uint8]) -> None:
    consumed = ffi.new("size_t *")
    pointer, room = ffi.from_buffer("uint8_t[]", words), ffi.from_buffer("uint8_t[]", out)
    done, block = 0, codec.block_bytes // 4
    while done < words.size:
        at, left = pointer + 4 * done, words.size - done
        lib.sn_encode(codec.number, codec.parameter, at, left, block, room, FRAME_BODY_BYTES, consumed)
        done += consumed[0]


def measured(codec: codecs.Codec, simd: str, data: str, words: Floats, rounds: int) -> Row:
    simd_select(simd)
    out, back = np.empty(codec.bound(words.size), np.uint8), np.empty_like(words)
    used = codec.encode_into(words, out)
    body = out[:used].copy()
    works: dict[str, timing.Work] = {
        "memcpy": lambda: np.copyto(back, words),
        "encode": lambda: codec.encode_into(words, out),
        "decode": lambda: codec.decode_into(body, back),
        "roundtrip": lambda: codec.roundtrip(words, back),
        "frames": lambda: encode_frames(codec, words, out),
    }
    taken = timing.alternate(works, rounds, SLICE_S, timing.ONE_CORE)
    rates = {kind: words.nbytes / timing.median(seconds) / 1e9 for kind, seconds in taken.items()}
    shares = {kind: timing.ratio(taken["memcpy"], taken[kind]) for kind in KINDS}
    return Row(str(codec), simd, data, words.nbytes / used, rates.pop("memcpy"), rates, shares)


def columns() -> list[Column[Row]]:
    def rate(kind: str) -> Column[Row]:
        return Column(kind, lambda row: f"{figure(row.gb_per_s[kind])} {share(row.of_memcpy[kind]):>6}")

    return [
        Column("codec", lambda row: row.codec, left=True),
        Column("simd", lambda row: row.simd, left=True),
        Column("data", lambda row: row.data, left=True),
        Column("ratio", lambda row: figure(row.ratio)),
        Column("memcpy", lambda row: figure(row.memcpy_gb_per_s, ".1f")),
        *map(rate, KINDS),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--codec", nargs="+", type=codecs.get, default=[codecs.get(name) for name in default_codecs()])
    parser.add_argument("--simd", nargs="+", choices=codecs.simd_available(), default=[codecs.simd()])
    parser.add_argument("--data", nargs="+", type=inputs.check, default=DATA)
    parser.add_argument("--megabytes", type=float, default=16, help="of float32 (16)")
    harness.add_rounds(parser, 5)


def measure_codecs(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Row]]:
    count = max(1, round(given.megabytes * 1e6 / 4))
    with at_most(1):
        cases = itertools.product(given.data, given.codec, given.simd)
        made = (measured(codec, simd, data, inputs.floats(data, count), given.rounds) for data, codec, simd in cases)
        rows = as_measured(made, columns(), progress)
    settings = {"megabytes": given.megabytes, "rounds": given.rounds}
    title = "GB/s of float32 on one core, and share of memcpy in the same rounds"
    return [MeasurementReport("benchmarks.codec", title, columns(), rows, settings)]


if __name__ == "__main__":
    sys.exit(harness.main("codec", __doc__, measure_codecs, add_options))
