"""Models sharded by `fully_shard`, compressed both ways: four ranks as processes over real NICs."""

from __future__ import annotations

from typing import Any

import pytest

from tests import needs
from tests.torch import jobs

pytestmark = pytest.mark.slow

RANKS = 4


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return each rank's results."""
    needs.module("torch")
    directory = tmp_path_factory.mktemp("job")
    return [lines[0] for lines in jobs.results("sharded", RANKS, directory, rate="1gbit", delay="20us")]


@pytest.mark.parametrize("how", ["fp32", "bf16", "kept", "over two"])
def test_lossless_weights_change_no_bit(results: list[dict[str, Any]], how: str) -> None:
    assert [rank[f"exact {how}"] for rank in results] == [True] * RANKS


def test_four_bit_gradients_train_nearly_as_exact_ones(results: list[dict[str, Any]]) -> None:
    for rank in results:
        assert rank["same bits"]
        assert 0 < rank["off by"] < 0.1


def test_the_mixed_precision_policy_is_respected(results: list[dict[str, Any]]) -> None:
    for rank in results:
        assert rank["gather_shards"] == ["torch.bfloat16"]
        assert rank["scatter_sum"] == ["torch.float32"]


def test_replicas_of_shards(results: list[dict[str, Any]]) -> None:
    for rank in results:
        assert rank["hsdp exact"]
        assert rank["hsdp same bits"]
        assert rank["hsdp codec"] == "rht:4"
        assert 0 < rank["hsdp off by"] < 0.1


def test_a_checkpoint_is_loaded_over_another_mesh(results: list[dict[str, Any]]) -> None:
    assert [rank["checkpoint"] for rank in results] == [True] * RANKS


def test_optimizers_that_share_weights_and_broadcasts(results: list[dict[str, Any]]) -> None:
    assert [rank["zero"] for rank in results] == [True] * RANKS
