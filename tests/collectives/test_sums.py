"""The error of a sum by the algorithm that a call chooses, in errors of one encoding of its contributions."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import sums
from softnic.collectives.schedule import ALGORITHMS, choose

COUNT = 1 << 15
LIMIT = 2.2
"""Two roundings, and what a sample of heavy tails differs by."""
SIZES = tuple(1 << power for power in range(8, 28))
"""Bytes: every class that algorithms are chosen by."""


def contributions(data: str, size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    values = sums.DISTRIBUTIONS[data](np.random.default_rng(size), size * COUNT)
    return (values * 0.01).astype(np.float32).reshape(size, COUNT)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 12, 16])
@pytest.mark.parametrize("data", sums.DISTRIBUTIONS)
def test_a_sum_through_rht_costs_two_encodings_at_every_size(data: str, size: int) -> None:
    words = contributions(data, size)
    for codec in ("rht:3", "rht:4", "rht:6"):
        chosen = tuple({choose("allreduce", nbytes, size, codec) for nbytes in SIZES})
        for row in sums.measured_rows(words, codec, data, chosen):
            assert 1.3 < row.encodings <= LIMIT, row


def test_a_sum_through_bounded_costs_one_encoding_with_any_algorithm() -> None:
    rows = sums.measured_rows(contributions("gaussian", 8), "bounded:10", "gaussian", ALGORITHMS)
    assert all(0.95 < row.encodings < 1.05 for row in rows)


def test_a_ring_and_a_tree_of_two_levels_cost_more_than_the_choice() -> None:
    """What the choice is for."""
    found = {
        row.algorithm: row for row in sums.measured_rows(contributions("laplace", 8), "rht:4", "laplace", ALGORITHMS)
    }
    assert found["ring"].encodings > 4 > LIMIT
    assert found["tree"].encodings > LIMIT
    assert {name for name, row in found.items() if row.chosen} == {"wa", "direct"}


@pytest.mark.parametrize("codec", ["rht:4", "bounded:10"])
def test_equal_contributions_cost_less_than_two_encodings(codec: str) -> None:
    """Their errors are equal, too, and so grow as the sum does."""
    words = np.tile(contributions("gaussian", 1), (8, 1))
    for row in sums.measured_rows(words, codec, "gaussian", ("direct", "wa")):
        assert row.encodings < 2
