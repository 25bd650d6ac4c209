"""The ends of process groups, in a job whose NIC is started for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.comm.bootstrap.test_nic_launcher import as_torchrun, clean

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SIZE = 2


def test_groups_leave_no_fds_open_and_print_nothing_at_exit(tmp_path: Path) -> None:
    """Each round starts another NIC. The previous one ends when both ranks have released it, so one may be left."""
    command = [sys.executable, "-m", "tests.torch.ending_groups", str(tmp_path)]
    environments = [clean() | as_torchrun(rank, SIZE, tmp_path.name) for rank in range(SIZE)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, env=each, cwd=ROOT, **pipes) for each in environments]
    for rank in ranks:
        output, errors = rank.communicate(timeout=300)
        assert errors == ""
        counts = json.loads(output.removeprefix("RESULT "))
        assert max(counts) - counts[0] <= 3, counts
