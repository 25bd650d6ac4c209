"""Ranks as processes over real NICs, in one job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster
from tests.daemon.nics import TOLD_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BIASES_AND_THE_LAST = ["0.bias", "2.bias", "3.weight", "3.bias"]
"""Parameters that are not compressed: below the floor, or exact by a pattern."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of rank 0, and those of rank 1 before it was killed."""
    store = tmp_path_factory.mktemp("job") / "store"
    command = [sys.executable, "-m", "tests.torch.trained", str(store)]
    with Cluster(nodes=2, rate="1gbit", delay="20us", loss="0.1%", seed=5) as cluster:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environments = [os.environ | cluster.env(rank) for rank in range(2)]
        ranks = [subprocess.Popen(command, env=each, cwd=ROOT, **pipes) for each in environments]
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    found: dict[str, Any] = {"ranks": []}
    for output, errors in outputs:
        lines = [json.loads(line[7:]) for line in output.splitlines() if line.startswith("RESULT ")]
        assert lines, errors
        found["ranks"].append(lines[0])
        found |= {} if len(lines) < 2 else lines[1]
    return found


@pytest.mark.parametrize("name", ["ddp losses", "ddp weights", "powersgd"])
def test_training_equals_gloo_bit_for_bit(results: dict[str, Any], name: str) -> None:
    assert [rank[name] for rank in results["ranks"]] == [True, True]


def test_fully_sharded_training_equals_data_parallel_training(results: dict[str, Any]) -> None:
    assert [rank["fsdp2"] for rank in results["ranks"]] == [True, True]


def test_layers_are_compressed_by_their_patterns(results: dict[str, Any]) -> None:
    for rank in results["ranks"]:
        assert rank["layers without codec"]
        assert rank["layers kept"] == BIASES_AND_THE_LAST
        assert rank["layers near"]


@pytest.mark.parametrize("name", ["objects", "sub-group", "functional", "communicator"])
def test_calls_beside_training(results: dict[str, Any], name: str) -> None:
    assert [rank[name] for rank in results["ranks"]] == [True, True]


def test_a_killed_rank_is_named_in_an_error_within_five_seconds(results: dict[str, Any]) -> None:
    assert "rank 1" in results["error"]
    assert results["seconds"] < TOLD_S
