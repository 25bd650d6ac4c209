"""Ranks as processes over real NICs: what in-process groups cannot show, in one job."""

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
"""What compresses nothing: shorter than the floor, or named exact."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that rank 0 of the job says, and of rank 1 what it said before it was killed."""
    store = tmp_path_factory.mktemp("job") / "store"
    command = [sys.executable, "-m", "tests.torch.trained", str(store)]
    with Cluster(nodes=2, rate="1gbit", delay="20us", loss="0.1%", seed=5) as cluster:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environments = [os.environ | cluster.env(rank) for rank in range(2)]
        ranks = [subprocess.Popen(command, env=each, cwd=ROOT, **pipes) for each in environments]
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    found: dict[str, Any] = {"ranks": []}
    for output, errors in outputs:
        lines = [json.loads(line[5:]) for line in output.splitlines() if line.startswith("TOLD ")]
        assert lines, errors
        found["ranks"].append(lines[0])
        found |= {} if len(lines) < 2 else lines[1]
    return found


@pytest.mark.parametrize("what", ["ddp losses", "ddp weights", "powersgd"])
def test_training_equals_gloo_bit_for_bit(told: dict[str, Any], what: str) -> None:
    assert [rank[what] for rank in told["ranks"]] == [True, True]


def test_fully_sharded_training_equals_data_parallel_training(told: dict[str, Any]) -> None:
    assert [rank["fsdp2"] for rank in told["ranks"]] == [True, True]


def test_layers_are_compressed_by_their_patterns(told: dict[str, Any]) -> None:
    for rank in told["ranks"]:
        assert rank["layers without codec"]
        assert rank["layers kept"] == BIASES_AND_THE_LAST
        assert rank["layers near"]


@pytest.mark.parametrize("what", ["objects", "sub-group", "functional", "communicator"])
def test_calls_beside_training(told: dict[str, Any], what: str) -> None:
    assert [rank[what] for rank in told["ranks"]] == [True, True]


def test_a_killed_rank_is_named_in_an_error_within_five_seconds(told: dict[str, Any]) -> None:
    assert "rank 1" in told["error"]
    assert told["seconds"] < TOLD_S
