"""Counts the instructions that the kernels take on AArch64, one by one, in the emulator.

python -m tests.aarch64.instructions [--codec bounded:10 ...] [--words 16384]

An emulator cannot tell how long they take: this says how much work a kernel is, and nothing about its speed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from softnic import codecs
from softnic._native import lib
from tests.aarch64.machine import EMULATOR, NUMBERS, Machine, build

CALLS = ("sn_encode", "sn_decode", "sn_roundtrip")
SIGMAS = {"gaussian": 0.01, "silent": 0.00001}


def one_at_a_time() -> str:
    """The emulator's option by which each instruction is a line of its log; newer versions call it by another name."""
    names = subprocess.run([EMULATOR, "--help"], capture_output=True, text=True, timeout=300, check=False).stdout
    return "-one-insn-per-tb" if "-one-insn-per-tb" in names else "-singlestep"


def executed(log: Path, call: str) -> int:
    """Instructions from the call's first one until its caller goes on."""
    count, inside = 0, False
    with log.open() as lines:
        for line in lines:
            where = line.rsplit("] ", 1)[-1].strip()
            inside = where == call or (inside and where not in ("main", "run"))
            count += inside
    return count


def measure(program: Path, codec: codecs.Codec, simd: str, words: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> str:
    body = codec.encode(words.view(np.float32))
    counts = []
    for call in CALLS:
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory) / "log"
            with Machine(program, one_at_a_time(), "-d", "nochain,exec", "-D", str(log)) as machine:
                if call == "sn_encode":
                    machine.encode(
                        simd, codec, words, 16, lib.sn_encoded_bound(codec.number, codec.parameter, words.size)
                    )
                elif call == "sn_decode":
                    machine.decode(simd, codec, body, words.size)
                else:
                    machine.roundtrip(simd, codec, words)
            counts.append(executed(log, call) / (words.nbytes / 64))
    return "".join(f"{count:10.1f}" for count in counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--codec", nargs="+", default=["inceptionn:10", "bounded:10"])
    parser.add_argument("--words", type=int, default=16384)
    arguments = parser.parse_args()
    values = np.random.default_rng(1).standard_normal(arguments.words)
    print(f"instructions per 64 bytes of floats\n{'':32}{'encode':>10}{'decode':>10}{'roundtrip':>10}")
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory))
        for codec in map(codecs.get, arguments.codec):
            for data, sigma in SIGMAS.items():
                words = (values * sigma).astype(np.float32).view(np.uint32)
                for simd in NUMBERS:
                    print(f"{codec!s:16}{data:10}{simd:6}{measure(program, codec, simd, words)}", flush=True)


if __name__ == "__main__":
    main()
