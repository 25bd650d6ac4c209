"""What codecs cost: GB/s of float32 on one core, encoding, decoding, both at once, and frame by frame.

python benchmarks/codec.py [--codec bounded:10 ...] [--simd scalar avx2] [--megabytes 16] [--seconds 0.5] [--json FILE]

Every figure stands beside memcpy of the same words in the same run, because machines differ and neighbours disturb.
`frames` encodes as the NIC does: into the room of one 1500-byte frame after the other.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from softnic import codecs
from softnic._native import ffi, lib
from softnic.codecs.kernels import simd_select
from softnic.codecs.threads import at_most

Floats = npt.NDArray[np.float32]
FRAME_BODY_BYTES = 1500 - 40 - 12 - lib.SN_PAYLOAD_HEADER
"""An IPv4 packet less its headers, timestamps and the payload header."""


@dataclass
class Result:
    codec: str
    simd: str
    data: str
    ratio: float
    """Bytes before to bytes after."""
    memcpy_gb_per_s: float
    encode_gb_per_s: float
    decode_gb_per_s: float
    roundtrip_gb_per_s: float
    frames_gb_per_s: float


def inputs(count: int) -> dict[str, Floats]:
    """Gradients early and late in training, one of mostly silent words, and words that do not shrink."""
    rng = np.random.default_rng(1)
    gauss = rng.standard_normal(count, np.float32)
    sparse = np.where(rng.random(count) < 0.02, gauss, 0)
    return {
        "gaussian 0.01": gauss * np.float32(0.01),
        "gaussian 0.001": gauss * np.float32(0.001),
        "2% of 0.01": (sparse * 0.01).astype(np.float32),
        "gaussian 100": gauss * np.float32(100),
    }


def rate(work: Callable[[], object], size: int, seconds: float) -> float:
    """GB/s of the quickest of as many runs as fit: what the code costs, without what else the machine did."""
    work()
    best, until = float("inf"), time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        work()
        ended = time.perf_counter()
        best = min(best, ended - began)
        if ended >= until:
            return size / best / 1e9


def encode_frames(codec: codecs.Codec, words: Floats, out: npt.NDArray[np.uint8]) -> None:
    consumed = ffi.new("size_t *")
    pointer, room = ffi.from_buffer("uint8_t[]", words), ffi.from_buffer("uint8_t[]", out)
    done = 0
    while done < words.size:
        at, left = pointer + 4 * done, words.size - done
        lib.sn_encode(codec.number, codec.parameter, at, left, 16, room, FRAME_BODY_BYTES, consumed)
        done += consumed[0]


def measure(codec: codecs.Codec, simd: str, name: str, words: Floats, seconds: float) -> Result:
    simd_select(simd)
    out, back = np.empty(codec.bound(words.size), np.uint8), np.empty_like(words)
    used = codec.encode_into(words, out)
    body = out[:used].copy()
    return Result(
        codec=str(codec),
        simd=simd,
        data=name,
        ratio=words.nbytes / used,
        memcpy_gb_per_s=rate(lambda: np.copyto(back, words), words.nbytes, seconds),
        encode_gb_per_s=rate(lambda: codec.encode_into(words, out), words.nbytes, seconds),
        decode_gb_per_s=rate(lambda: codec.decode_into(body, back), words.nbytes, seconds),
        roundtrip_gb_per_s=rate(lambda: codec.roundtrip(words, back), words.nbytes, seconds),
        frames_gb_per_s=rate(lambda: encode_frames(codec, words, out), words.nbytes, seconds),
    )


def table(results: list[Result]) -> Table:
    title = "GB/s of float32 on one core, and percent of memcpy in the same run"
    drawn = Table(title=title, box=None, padding=(0, 1, 0, 0))
    for heading in ("codec", "simd", "data", "ratio", "memcpy", "encode", "decode", "roundtrip", "frames"):
        drawn.add_column(heading, justify="left" if heading in ("codec", "simd", "data") else "right", no_wrap=True)
    for result in results:
        memcpy = result.memcpy_gb_per_s
        rates = (result.encode_gb_per_s, result.decode_gb_per_s, result.roundtrip_gb_per_s, result.frames_gb_per_s)
        shares = [f"{value:.2f} {value / memcpy:3.0%}" for value in rates]
        drawn.add_row(result.codec, result.simd, result.data, f"{result.ratio:.2f}", f"{memcpy:.1f}", *shares)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", nargs="+", type=codecs.get, default=["inceptionn:10", "bounded:10"])
    parser.add_argument("--simd", nargs="+", choices=codecs.simd_available(), default=[codecs.simd()])
    parser.add_argument("--megabytes", type=float, default=16, help="of float32 (default: 16)")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure (default: 0.3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    data = inputs(max(1, round(arguments.megabytes * 1e6 / 4)))
    chosen = [codecs.get(str(codec)) for codec in arguments.codec]
    console = Console()
    with console.status("measuring"), at_most(1):
        results = [
            measure(codec, simd, name, words, arguments.seconds)
            for codec in chosen
            for simd in arguments.simd
            for name, words in data.items()
        ]
    console.print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
