"""An AArch64 machine for the kernels: native/ built by a cross compiler, as pyproject.toml builds it but with warnings
as errors, and run by qemu-user. Requests go in through a pipe, answers come back, as kernels.c says.

The implementations are named as `softnic.codecs.simd` names them. What a kernel does here it does on any AArch64
machine; how long it takes here says nothing.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np

from softnic._native import lib
from softnic.codecs import Codec
from tests.codecs.cases import Words

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = Path(__file__).with_name("kernels.c")

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PACKAGES = "gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user"

ENCODE, DECODE, ROUNDTRIP, ROUNDTRIP_IN_PLACE, NAME_OF_DEFAULT = range(5)
NUMBERS = {"scalar": lib.SN_SCALAR, "neon": lib.SN_NEON}

_REQUEST, _ANSWER = struct.Struct("=IIIiQQQ"), struct.Struct("=qQQ")


def build(directory: Path) -> Path:
    """The program, made of every source that pyproject.toml names. Raises AssertionError with what gcc says."""
    (extension,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    flags = [*extension["extra-compile-args"], "-Werror", "-I", str(ROOT / "native")]

    def make(*arguments: str) -> None:
        done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def compiled(source: Path) -> str:
        made = directory / f"{source.stem}.o"
        make(*flags, "-c", str(source), "-o", str(made))
        return str(made)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, [DRIVER, *(ROOT / name for name in extension["sources"])]))
    make("-static", *objects, "-o", str(directory / "kernels"))
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
            self._process.communicate(timeout=60)

    def default(self) -> str:
        """The implementation that the library has chosen for itself."""
        return self._ask(_REQUEST.pack(NAME_OF_DEFAULT, 0, 0, 0, 0, 0, 0), b"")[2].decode()

    def encode(self, simd: str, codec: Codec, words: Words, first: int, capacity: int) -> tuple[bytes, int]:
        """sn_encode with exactly this much room. Returns the bytes and the words they hold."""
        _, consumed, body = self._run(ENCODE, simd, codec, words.tobytes(), capacity, first)
        return body, consumed

    def decode(self, simd: str, codec: Codec, body: bytes, count: int) -> Words | None:
        """sn_decode of exactly these bytes: the words, or None where they are refused."""
        result, _, words = self._run(DECODE, simd, codec, body, 4 * count)
        return None if result else np.frombuffer(words, np.uint32)

    def roundtrip(self, simd: str, codec: Codec, words: Words, *, in_place: bool = False) -> bytes:
        operation = ROUNDTRIP_IN_PLACE if in_place else ROUNDTRIP
        return self._run(operation, simd, codec, words.tobytes(), words.nbytes)[2]

    def _run(
        self, operation: int, simd: str, codec: Codec, data: bytes, size_out: int, first: int = 16
    ) -> tuple[int, int, bytes]:
        head = _REQUEST.pack(operation, NUMBERS[simd], codec.number, codec.parameter, first, size_out, len(data))
        return self._ask(head, data)

    def _ask(self, head: bytes, data: bytes) -> tuple[int, int, bytes]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        with contextlib.suppress(BrokenPipeError):  # what ended the program is told below
            requests.write(head)
            requests.write(data)
            requests.flush()
        given = answers.read(_ANSWER.size)
        if len(given) < _ANSWER.size:
            assert self._process.stderr is not None
            raise AssertionError(f"the kernels' program ended: {self._process.stderr.read().decode()}")
        result, consumed, size = _ANSWER.unpack(given)
        return result, consumed, answers.read(size)
