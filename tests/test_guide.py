"""The complete programs of the user's guide run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs" / "mpi.md").read_text(), re.DOTALL))
SAYS = {"overlap.py": "layers exchanged: 3", "await.py": "sums: [3.0, 6.0, 9.0, 12.0]"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_guide(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROGRAMS[name])
    done = subprocess.run(
        [sys.executable, "-m", "softnic", "run", "-n", "3", "--rate", "1gbit", "--", sys.executable, name],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SAYS[name] in done.stdout


def test_every_complete_program_is_tested() -> None:
    assert set(PROGRAMS) == set(SAYS)
