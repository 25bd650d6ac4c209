"""What the capture tests share: tshark, the judge of our files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import needs

Tshark = Callable[..., list[list[str]]]


@pytest.fixture
def tshark() -> Tshark:
    """Runs tshark on a file: the named fields of every packet that the filter lets through."""
    if missing := needs.missing_tools("tshark"):
        needs.skip(missing)

    def run(path: Path, *fields: str, where: str = "", options: tuple[str, ...] = ()) -> list[list[str]]:
        command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "separator=|", *options]
        command += [part for field in fields for part in ("-e", field)]
        done = subprocess.run([*command, "-Y", where], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]

    return run
