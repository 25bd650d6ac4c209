"""What the capture tests share: tshark, the judge of our files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Tshark = Callable[..., list[list[str]]]


@pytest.fixture
def tshark() -> Tshark:
    """Runs tshark on a file: the named fields of every packet that the filter lets through."""
    program = shutil.which("tshark")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("tshark has to be installed where CI runs")
        pytest.skip("tshark is not installed")

    def run(path: Path, *fields: str, where: str = "", options: tuple[str, ...] = ()) -> list[list[str]]:
        command = [str(program), "-n", "-r", str(path), "-T", "fields", "-E", "separator=|", *options]
        command += [part for field in fields for part in ("-e", field)]
        done = subprocess.run([*command, "-Y", where], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]

    return run
