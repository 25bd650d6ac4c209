"""Some hundred worlds: whatever their seeds make of them, nothing that must hold is violated."""

from __future__ import annotations

import pytest

from softnic.testing.__main__ import replay, try_seed

SEEDS = 200
GROUP = 10


@pytest.mark.parametrize("group", range(SEEDS // GROUP))
def test_nothing_is_violated(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        outcome = try_seed(seed)
        assert not outcome.error, f"seed {seed}: {outcome.error}\nto see it: {replay(seed)}"
