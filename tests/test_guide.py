"""The complete programs of the user's guide run as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documented import run_program

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs" / "mpi.md").read_text(), re.DOTALL))
SAYS = {"overlap.py": "layers exchanged: 3", "await.py": "sums: [3.0, 6.0, 9.0, 12.0]"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_guide(name: str, tmp_path: Path) -> None:
    assert SAYS[name] in run_program(tmp_path, name, PROGRAMS[name], "-n", "3", "--rate", "1gbit")


def test_every_complete_program_is_tested() -> None:
    assert set(PROGRAMS) == set(SAYS)
