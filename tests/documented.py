"""Programs of documents, run under `softnic run`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(directory: Path, name: str, source: str, *options: str) -> str:
    """Write a program to `directory`, run it under `softnic run` with these options, and return its output."""
    (directory / name).write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "softnic", "run", *options, "--", sys.executable, name],
        cwd=directory,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
