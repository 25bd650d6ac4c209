"""The example of docs/elastic.md: a job that goes on while its replicas are killed and start again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs

needs.module("torch")
needs.module("torchft")

from torchft.coordination import LighthouseServer

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "torchft_ddp.py"
LIMIT_S = 300.0


def replicas(*flags: str, steps: int) -> tuple[str, str]:
    """Return the output of three replicas, and what `softnic run` says. All end well."""
    server: Any = LighthouseServer(bind="0.0.0.0:0", min_replicas=2, join_timeout_ms=200, heartbeat_timeout_ms=3000)
    try:
        port = server.address().rpartition(":")[2]
        env = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "RUST_LOG": "off"}
        argv = [sys.executable, "-m", "softnic", "run", "-n", "3", *flags, "--", sys.executable, str(EXAMPLE)]
        argv += ["--steps", str(steps), "--codec", "rht:4"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    finally:
        server.shutdown()
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


def test_three_replicas_train() -> None:
    out, _ = replicas(steps=100)
    steps = re.findall(r"^\[(\d)\] step 100, ([23]) replicas, loss ", out, re.MULTILINE)
    assert {rank for rank, _ in steps} == {"0", "1", "2"}


@pytest.mark.slow
def test_a_replica_that_is_killed_comes_back_and_all_reach_the_end() -> None:
    out, said = replicas("--churn", "7s", "--seed", "2", steps=3000)
    assert "is killed" in said or "is cut off" in said
    assert len(set(re.findall(r"^\[(\d)\] step 3000, ", out, re.MULTILINE))) >= 2
