"""Some hundred worlds: whatever their seeds make of them, nothing that must hold is violated."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.simulation.__main__ import replay
from tests.simulation.actions import Abort, Await, Leave, Sleep
from tests.simulation.scenario import FaultKind, draw
from tests.simulation.seeds import try_seed
from tests.slow import slow_after

SEEDS = 200
GROUP = 10


@pytest.mark.parametrize("group", slow_after(6, range(SEEDS // GROUP)))
def test_nothing_is_violated(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        outcome = try_seed(seed)
        assert not outcome.error, f"seed {seed}: {outcome.error}\nto see it: {replay(seed)}"


def test_seeds_make_worlds_of_all_kinds() -> None:
    plans = [draw(seed) for seed in range(SEEDS)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(get_args(FaultKind))
    assert {team.ends for plan in plans for team in plan.teams} == {"together", "leaves", "cancels", "differs"}
    assert {len(plan.machines) for plan in plans} == {2, 3, 4, 5}
    assert {plan.calm for plan in plans} == {True, False}
    halves = [half for plan in plans for talk in plan.conversations for half in talk.halves]
    actions = {type(action) for half in halves for action in half.script}
    assert actions > {Abort, Await, Leave, Sleep}
    for habit in ("eager", "ahead", "lends", "nodelay", "blocks"):
        assert {getattr(half, habit) for half in halves} == {True, False}
    assert any(machine.plain for plan in plans for machine in plan.machines)
