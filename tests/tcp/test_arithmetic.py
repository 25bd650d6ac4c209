"""Windows, round trips and rates come out the same to the bit from every compiler and on every processor.

Virtual time and recorded traces rest on it. By default a compiler may fuse a multiplication and an addition into one
instruction, which rounds once where two round twice.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.library import FLAGS, ROOT

DRIVER = Path(__file__).with_name("arithmetic.c")
AARCH64 = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
COMPILERS: dict[str, tuple[list[str], list[str]]] = {
    "clang": (["clang"], []),
    "gcc for AArch64": ([AARCH64, "-static"], [EMULATOR]),
    "clang for AArch64": (["clang", "--target=aarch64-linux-gnu", "-static"], [EMULATOR]),
}
"""How to compile, and how to run."""


def results(directory: Path, compiler: list[str], runner: list[str], *more: str) -> str:
    program = directory / "arithmetic"
    sources = [str(DRIVER), *(str(ROOT / "native/tcp" / name) for name in ("flow_growth.c", "bbr.c"))]
    build = [*compiler, *FLAGS, *more, "-Werror", "-fno-builtin-pow", *sources]
    made = subprocess.run([*build, "-lm", "-o", str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    return subprocess.run([*runner, str(program)], capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What this machine's own compiler makes of it."""
    return results(tmp_path_factory.mktemp("own"), ["cc"], [])


@pytest.mark.parametrize("name", COMPILERS)
def test_every_compiler_gives_the_same_numbers(name: str, expected: str, tmp_path: Path) -> None:
    compiler, runner = COMPILERS[name]
    tools = {compiler[0], *runner, *([AARCH64] if "AArch64" in name else [])}  # for its C library
    if missing := needs.missing_tools(*sorted(tools)):
        needs.skip(missing)
    assert results(tmp_path, compiler, runner) == expected


def test_the_flag_that_forbids_fusing_is_what_makes_them_the_same(expected: str, tmp_path: Path) -> None:
    if missing := needs.missing_tools(AARCH64, EMULATOR):
        needs.skip(missing)
    assert results(tmp_path, [AARCH64, "-static"], [EMULATOR], "-ffp-contract=fast") != expected
