"""Which ranks connect at the start, and which of two connects to the other."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives import pairs
from softnic.collectives.schedule import peers

SIZES = st.integers(1, 300)
CHOICE = st.sampled_from(pairs.CHOICES)


@given(SIZES, CHOICE)
def test_two_ranks_agree_on_their_connection_and_on_who_makes_it(size: int, choice: str) -> None:
    first = [pairs.at_start(rank, size, choice) for rank in range(size)]
    lower = [pairs.lower(rank, ranks) for rank, ranks in enumerate(first)]
    for rank, ranks in enumerate(first):
        assert rank not in ranks
        for other in ranks:
            assert rank in first[other]
            assert (other in lower[rank]) != (rank in lower[other])


@given(SIZES)
def test_all_ranks_of_a_tree_are_reached_and_each_has_one_above(size: int) -> None:
    above = [pairs.lower(rank, pairs.at_start(rank, size, "needed")) for rank in range(size)]
    assert above[0] == []
    assert all(len(ranks) == 1 for ranks in above[1:])  # which is lower, so all ways end at rank 0


@given(SIZES)
def test_a_tree_has_few_connections_a_rank(size: int) -> None:
    most = max(len(pairs.at_start(rank, size, "needed")) for rank in range(size))
    assert most <= 1 + 3 * math.ceil(math.log(max(size, 2), 4))


@pytest.mark.parametrize(("size", "full"), [(1, True), (8, True), (9, False)])
def test_a_few_ranks_all_connect(size: int, full: bool) -> None:
    assert pairs.is_full(size) == full
    assert pairs.is_full(size, "all")
    assert not pairs.is_full(size, "needed")
    found = pairs.at_start(size - 1, size)
    assert found == (frozenset(range(size - 1)) if full else peers("allreduce", "tree", size - 1, size, -1))


def test_other_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="'some' is not a choice of pairs: all or needed"):
        pairs.is_full(4, "some")
