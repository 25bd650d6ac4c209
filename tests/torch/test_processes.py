"""Ranks as processes over real NICs, in one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.nics import TOLD_S
from tests.torch import jobs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BIASES_AND_THE_LAST = ["0.bias", "2.bias", "3.weight", "3.bias"]
"""Parameters that are not compressed: below the floor, or exact by a pattern."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of rank 0, and those of rank 1 before it was killed."""
    store = tmp_path_factory.mktemp("job") / "store"
    links: dict[str, Any] = {"rate": "1gbit", "delay": "20us", "loss": "0.1%", "seed": 5}
    found: dict[str, Any] = {"ranks": []}
    for first, second, *others in jobs.results("trained", 2, store, **links):
        found["ranks"].append(first | second)
        for other in others:
            found |= other
    return found


@pytest.mark.parametrize("name", ["ddp losses", "ddp weights", "powersgd"])
def test_training_equals_gloo_bit_for_bit(results: dict[str, Any], name: str) -> None:
    assert [rank[name] for rank in results["ranks"]] == [True, True]


def test_training_on_uneven_inputs_equals_gloo(results: dict[str, Any]) -> None:
    """By all forms of join: of the model, with ZeRO's optimizer, with another Joinable, and both divisors."""
    assert [rank["uneven inputs"] for rank in results["ranks"]] == [[True] * 3] * 2


def test_version_counters_equal_those_of_gloo(results: dict[str, Any]) -> None:
    assert [rank["version counters"] for rank in results["ranks"]] == [True, True]


def test_fully_sharded_training_equals_data_parallel_training(results: dict[str, Any]) -> None:
    assert [rank["fsdp2"] for rank in results["ranks"]] == [True, True]


def test_layers_are_compressed_by_their_patterns(results: dict[str, Any]) -> None:
    for rank in results["ranks"]:
        assert rank["layers without codec"]
        assert rank["layers kept"] == BIASES_AND_THE_LAST
        assert rank["layers near"]


@pytest.mark.parametrize("name", ["stats", "objects", "sub-group", "functional", "communicator"])
def test_calls_beside_training(results: dict[str, Any], name: str) -> None:
    assert [rank[name] for rank in results["ranks"]] == [True, True]


def test_a_killed_rank_is_named_in_an_error_within_five_seconds(results: dict[str, Any]) -> None:
    assert "rank 1" in results["error"]
    assert results["seconds"] < TOLD_S
