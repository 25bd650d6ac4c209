"""Features of torch beyond collectives and plain training, in one job of two ranks and one of four."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch import jobs

pytestmark = pytest.mark.slow
FEATURES = [
    "devices",
    "object device",
    "gathered in one tensor",
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
    return [line for lines in jobs.results("featured", nodes, directory) for line in lines]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(2, tmp_path_factory.mktemp("job"))


@pytest.mark.parametrize("name", FEATURES)
def test_features_on_two_ranks(two: Results, name: str) -> None:
    assert [rank[name] for rank in two] == [True, True]


def test_features_on_four_ranks(tmp_path: Path) -> None:
    results = results_of(4, tmp_path)
    assert results == [{name: True for name in [*FEATURES, *ON_FOUR_RANKS]}] * 4
