"""Features of torch beyond collectives and plain training, in one job of two ranks and one of four."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
FEATURES = [
    "devices",
    "object device",
    "mean of integers",
    "compiled, plain",
    "compiled, with_layers",
    "compiled collectives",
    "loaded from rank 0",
    "saved",
    "saved in the background",
]
ON_FOUR_RANKS = [
    "compiled whole step, plain",
    "compiled whole step, with_layers",
    "compiled, with_method",
    "compiled, with_bf16",
    "compiled whole step, with_method",
    "compiled whole step, with_bf16",
    "one dimension is all ranks",
    "two dimensions are not",
    "replicate",
    "shard",
]


Results = list[dict[str, bool]]
"""The results of each rank of a job."""


def results_of(nodes: int, directory: Path) -> Results:
    command = [sys.executable, "-m", "tests.torch.featured", str(directory)]
    with Cluster(nodes=nodes) as cluster:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environments = [os.environ | cluster.env(rank) for rank in range(nodes)]
        ranks = [subprocess.Popen(command, env=each, cwd=ROOT, **pipes) for each in environments]
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    found = []
    for output, errors in outputs:
        lines = [json.loads(line[7:]) for line in output.splitlines() if line.startswith("RESULT ")]
        assert lines, errors
        found += lines
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(2, tmp_path_factory.mktemp("job"))


@pytest.mark.parametrize("name", FEATURES)
def test_features_on_two_ranks(two: Results, name: str) -> None:
    assert [rank[name] for rank in two] == [True, True]


def test_features_on_four_ranks(tmp_path: Path) -> None:
    results = results_of(4, tmp_path)
    assert results == [{name: True for name in [*FEATURES, *ON_FOUR_RANKS]}] * 4
