"""`import torch` alone knows the backend, where softnic is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import {first}
import torch.distributed as dist
assert "softnic" in dist.Backend.backend_list, dist.Backend.backend_list
assert ("softnic.torch" in sys.modules) == ({first!r} == "softnic.torch")
import softnic.torch
"""


@pytest.mark.parametrize("first", ["torch", "softnic.torch"])
def test_torch_finds_the_backend_by_its_entry_point(tmp_path: Path, first: str) -> None:
    """As pip would have installed it; whichever is imported first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["torch.backends"]
    installed = tmp_path / "softnic-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: softnic\nVersion: 0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[torch.backends]", *lines]))
    paths = [str(ROOT), str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", PROGRAM.format(first=first)], env=environment, check=True, timeout=300)
