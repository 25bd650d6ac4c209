"""Kernels compiled for GPUs that need not be there: what runs in the interpreter need not compile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch.gpu.needed import NEEDED

pytestmark = NEEDED

ROOT = Path(__file__).parents[3]
LINE = re.compile(r"(.+): (\d+ fused, .+, \d+ lines)")


def printed(tmp_path: Path, module: str, *arguments: str) -> list[str]:
    """Return the lines that a module of this folder prints in a process without the interpreter."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", f"tests.torch.gpu.{module}", *arguments]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def compiled(tmp_path: Path, *arguments: str) -> dict[str, dict[str, int]]:
    """Return what is counted of each kernel."""
    found = [LINE.fullmatch(line) for line in printed(tmp_path, "compiled", *arguments)]
    return {
        each[1]: {what: int(count) for count, what in (part.split() for part in each[2].split(", "))}
        for each in found
        if each
    }


@pytest.mark.parametrize("target", ["cuda 80", "cuda 90", "hip gfx942"])
def test_kernels_compile_and_fuse_nothing(tmp_path: Path, target: str) -> None:
    found = compiled(tmp_path, *target.split())
    assert len(found) > 30
    assert {name for name, counts in found.items() if counts["fused"]} == set()
    assert all(counts["lines"] > 50 and counts["loads"] and counts["stores"] for counts in found.values())
    if target == "cuda 90":
        # Of the 16 words of each thread: twice as many would make kernels slower than memory.
        assert all(found[f"rht:4 {name}"]["exchanges"] <= 80 for name in ("encode", "decode", "decode and add"))
        assert all(found[f"rht:4 {name}"]["barriers"] <= 8 for name in ("encode", "decode", "decode and add"))
    [counts] = compiled(tmp_path, *target.split(), "fused").values()
    assert counts["fused"] > 0  # so they would be found


def test_calls_compile_what_they_launch(tmp_path: Path) -> None:
    kernels = {line.split()[0] for line in printed(tmp_path, "launched", "90")}
    of_slots = {"encode", "encode_with_residual", "decode", "decode_and_add", "reduce"}
    assert kernels == of_slots | {"place", "decode_body", "measure", "find"}
