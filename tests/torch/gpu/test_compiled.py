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
LINE = re.compile(r"(.+): (\d+) fused, (\d+) lines")


def compiled(tmp_path: Path, *arguments: str) -> dict[str, tuple[int, int]]:
    """Return the fused instructions and the lines of each kernel."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.torch.gpu.compiled", *arguments]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    found = [LINE.fullmatch(line) for line in ended.stdout.splitlines()]
    return {each[1]: (int(each[2]), int(each[3])) for each in found if each}


@pytest.mark.parametrize("target", ["cuda 80", "cuda 90", "hip gfx942"])
def test_kernels_compile_and_fuse_nothing(tmp_path: Path, target: str) -> None:
    found = compiled(tmp_path, *target.split())
    assert len(found) > 30
    assert {name for name, (fused, _) in found.items() if fused} == set()
    assert all(lines > 50 for _, lines in found.values())
    [(fused, _)] = compiled(tmp_path, *target.split(), "fused").values()
    assert fused > 0  # so they would be found
