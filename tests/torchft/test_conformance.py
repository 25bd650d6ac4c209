"""torchft's own tests, which its wheel has, with ProcessGroupSoftnic in place of ProcessGroupGloo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softnic import Cluster
from tests import needs

needs.module("torch")
needs.module("torchft")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900.0
OTHER_TEXTS = (r"NormalGlooMultiPgTest\.test_collective_with_resiliency", r"ProcessGroupTest\.test_gloo_timeout")
"""Tests that compare errors with Gloo's and NCCL's texts; docs/elastic.md lists them."""
LATE = r"test_streaming_diloco_commit_failure"
"""Fails now and then: docs/elastic.md says why."""


@pytest.mark.parametrize(
    "name", ["process_group", "manager_integ", "local_sgd_integ", "lighthouse", "parameter_server"]
)
def test_torchfts_own_tests(name: str) -> None:
    needs.module("parameterized")
    with Cluster(nodes=1) as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "tests.torchft.conformance", f"torchft.{name}_test"],
            env={**os.environ, **cluster.env(0)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
    lines = re.findall(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert lines, done.stdout[-4000:]
    found = json.loads(lines[-1])
    assert found["passed"]
    wrong = {
        test: why
        for test, why in found["failed"].items()
        if not (any(re.search(each, test) for each in OTHER_TEXTS) and "does not match" in why)
        and not (re.search(LATE, test) and why == "KeyError: 2")
    }
    assert wrong == {}, done.stdout[-4000:]
