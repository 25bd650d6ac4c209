"""An AArch64 machine for the kernels: native/ built by a cross compiler, as pyproject.toml builds it but with warnings
as errors, and run by qemu-user. Requests go in through a pipe, answers come back, as kernels.c says.

The implementations are named as `softnic.codecs.simd` names them. What a kernel does here it does on any AArch64
machine; how long it takes here says nothing.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType

import numpy as np

from softnic._native import lib
from softnic.codecs import Codec
from tests.codecs.cases import Words
from tests.library import FLAGS, SOURCES

DRIVER = Path(__file__).with_name("kernels.c")

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

NUMBERS = {"scalar": lib.SN_SCALAR, "neon": lib.SN_NEON}

_REQUEST, _ANSWER = struct.Struct("=IIiiiiQQQQQ"), struct.Struct("=qQQ")
RAW = Codec("raw", 0)


class Call(IntEnum):
    """What kernels.c can be asked for."""

    DEFAULT = 0
    ENCODE = 1
    DECODE = 2
    DECODE_PART = 3
    ROUNDTRIP = 4
    REDUCE = 5
    DECODE_COMBINE = 6
    COMBINE_ENCODE = 7
    COMBINE_ROUNDTRIP = 8


@dataclass(frozen=True)
class Answer:
    """What a call of the library gave: its result, the words it took, and what it wrote."""

    result: int
    consumed: int
    data: bytes


def build(directory: Path) -> Path:
    """The program, made of every source of softnic._native. Raises AssertionError with what gcc says."""

    def make(*arguments: str) -> None:
        done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def compiled(source: Path) -> str:
        made = directory / f"{source.stem}.o"
        make(*FLAGS, "-Werror", "-c", str(source), "-o", str(made))
        return str(made)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, [DRIVER, *SOURCES]))
    make("-static", *objects, "-lm", "-o", str(directory / "kernels"))
    return directory / "kernels"


class Machine:
    """The program in an emulator, to be used in a `with`. A kernel that crashes it is an error of the request."""

    def __init__(self, program: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [EMULATOR, *options, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=300)

    def default(self) -> str:
        """The implementation that the library has chosen for itself."""
        return self.run(Call.DEFAULT, "scalar").data.decode()

    def encode(self, simd: str, codec: Codec, words: Words, first: int, capacity: int) -> tuple[bytes, int]:
        """sn_encode with exactly this much room. Returns the bytes and the words they hold."""
        given = self.run(Call.ENCODE, simd, codec, left=words.tobytes(), first=first, room=capacity)
        return given.data, given.consumed

    def decode(self, simd: str, codec: Codec, body: bytes, count: int) -> Words | None:
        """sn_decode of exactly these bytes: the words, or None where they are refused."""
        given = self.run(Call.DECODE, simd, codec, left=body, room=4 * count)
        return None if given.result else np.frombuffer(given.data, np.uint32)

    def roundtrip(self, simd: str, codec: Codec, words: Words, *, in_place: bool = False) -> bytes:
        return self.run(Call.ROUNDTRIP, simd, codec, left=words.tobytes(), room=words.nbytes, in_place=in_place).data

    def run(
        self,
        call: Call,
        simd: str,
        codec: Codec = RAW,
        *,
        left: bytes = b"",
        right: bytes = b"",
        room: int = 0,
        operation: int = 0,
        type_: int = 0,
        first: int = 16,
        in_place: bool = False,
    ) -> Answer:
        """The call, with `room` bytes for what it writes, in place of `left` if so wished."""
        sizes = len(left), len(right)
        head = _REQUEST.pack(
            call, NUMBERS[simd], codec.number, codec.parameter, operation, type_, first, room, *sizes, in_place
        )
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        with contextlib.suppress(BrokenPipeError):  # what ended the program is told below
            requests.write(head + left + right)
            requests.flush()
        given = answers.read(_ANSWER.size)
        if len(given) < _ANSWER.size:
            assert self._process.stderr is not None
            raise AssertionError(f"the kernels' program ended: {self._process.stderr.read().decode()}")
        result, consumed, size = _ANSWER.unpack(given)
        return Answer(result, consumed, answers.read(size))
