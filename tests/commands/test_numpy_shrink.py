"""docs/examples/numpy_shrink.py: ranks die and come back, and the others go on. Weights are those of all at the end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "numpy_shrink.py"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_it_finishes_with_the_same_weights_on_all(seed: int) -> None:
    command = [sys.executable, "-m", "softnic", "run", "-n", "4", "--churn", "6s", "--seed", str(seed), "--"]
    done = subprocess.run(
        [*command, sys.executable, str(EXAMPLE), "--steps", "3000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    finished = re.findall(r"finished on [\d.]+: step (\d+), checksum (\S+)", done.stdout)
    assert len(finished) >= 2, done.stdout
    assert len(set(finished)) == 1, done.stdout
    assert finished[0][0] == "3000"
    assert len(re.findall("is killed|is cut off", done.stdout)) >= 2, done.stdout
    steps = [int(step) for step in re.findall(r"step (\d+): \d ranks, error", done.stdout)]
    assert steps == sorted(steps)
    assert "Traceback" not in done.stdout, done.stdout
