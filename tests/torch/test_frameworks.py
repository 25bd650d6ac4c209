"""accelerate, transformers' Trainer and Lightning train over softnic by the recipes of docs/torch.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("framework", ["accelerate", "transformers", "lightning"])
def test_a_framework_trains(framework: str, size: int, tmp_path: Path) -> None:
    for module in {"accelerate", framework} if framework == "transformers" else {framework}:
        if not needs.is_installed(module):
            needs.skip(f"not installed: {module} (pip install {module})")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | OFFLINE | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [*command, "-m", "tests.torch.frameworks", framework, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in range(size):
        results = json.loads((tmp_path / f"results{rank}.json").read_text())
        assert results == {key: True for key in results}
        assert results["trained"]
