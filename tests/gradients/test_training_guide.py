"""The program of docs/training.md runs as written, over real NICs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import needs
from tests.documented import run_program

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


@pytest.mark.slow
def test_a_torch_loop_with_an_aggregator(tmp_path: Path) -> None:
    needs.module("torch")
    [program] = re.findall(r"```python\n# aggregated\.py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    output = run_program(tmp_path, "aggregated.py", program, "-n", "3")
    said = re.search(r"weights: ([\d.]+) to 1, last with (\{.*\}) bits", output)
    loss = re.search(r"loss ([\d.]+)", output)
    assert said is not None
    assert loss is not None
    assert 1 < float(said[1]) < 4
    assert "'0.bias': 32" in said[2]
    assert float(loss[1]) < 1, "it was 16 before training: the variance of a sum of 16"
