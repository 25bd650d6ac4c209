"""Two hundred worlds without a violation and with the traces that are recorded, and the variety of what seeds draw.

Also with TCP's fast path off, and on by turns: the same traces. And with NICs that have several queues.
"""

from __future__ import annotations

from typing import get_args

import pytest

from tests.simulation.__main__ import replay
from tests.simulation.actions import AwaitBytes, Close, Reset, Sleep
from tests.simulation.node import FastPathMode
from tests.simulation.scenario import FaultKind, draw
from tests.simulation.seeds import try_seed
from tests.simulation.trace import different, entry
from tests.slow import slow_after, some

SEEDS = 200
GROUP = 10
GROUPS = range(SEEDS // GROUP)


@pytest.mark.parametrize("group", slow_after(6, GROUPS))
def test_nothing_is_violated_and_traces_are_as_recorded(group: int) -> None:
    run(group, None)


@pytest.mark.parametrize("group", slow_after(1, some(8, GROUPS)))
@pytest.mark.parametrize("fast_path", ["off", "mixed"])
def test_traces_do_not_depend_on_the_fast_path(fast_path: FastPathMode, group: int) -> None:
    assert bool(run(group, fast_path)) is (fast_path != "off")


def run(group: int, fast_path: FastPathMode | None) -> int:
    """Runs the worlds of a group. Returns the number of segments that the fast path has processed."""
    entries, segments = {}, 0
    for seed in range(group * GROUP, (group + 1) * GROUP):
        outcome = try_seed(seed, fast_path)
        assert not outcome.error, f"seed {seed}: {outcome.error}\nto replay it: {replay(seed, fast_path)}"
        entries[seed] = entry(outcome.trace, outcome.asked_of_python)
        segments += outcome.fast_path_segments
    assert not different(entries, counted=fast_path is None), (
        f"frames, their times, connections, or what C leaves to Python differ from traces.json. If that is intended: "
        f"python -m tests.simulation --seeds {SEEDS} --traces record"
    )
    return segments


@pytest.mark.parametrize("group", slow_after(1, some(8, GROUPS)))
@pytest.mark.parametrize("queues", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_nothing_is_violated_with_several_queues(queues: int, group: int) -> None:
    steered = cut = 0
    for seed in range(group * GROUP, (group + 1) * GROUP):
        outcome = try_seed(seed, queues=queues)
        assert not outcome.error, f"seed {seed}: {outcome.error}\nto replay it: {replay(seed, queues=queues)}"
        steered += outcome.steered_frames
        cut += outcome.cut_collectives
    assert steered
    assert cut or group, "the first group has collectives that are cut; not all others have"


@pytest.mark.parametrize("queues", [1, 3])
def test_worlds_with_queues_are_repeatable(queues: int) -> None:
    assert try_seed(3, queues=queues) == try_seed(3, queues=queues)


@pytest.mark.parametrize("seed", slow_after(2, (4, 10, 3, 17, 40, 91)))
def test_queues_do_the_same_with_the_fast_path_and_without(seed: int) -> None:
    assert len({try_seed(seed, mode, queues=3).trace for mode in get_args(FastPathMode)}) == 1


def test_seeds_make_worlds_of_all_kinds() -> None:
    scenarios = [draw(seed) for seed in range(SEEDS)]
    assert {fault.kind for scenario in scenarios for fault in scenario.faults} == set(get_args(FaultKind))
    assert {job.ends for scenario in scenarios for job in scenario.jobs} == {"together", "leaves", "cancels", "differs"}
    assert {len(scenario.nodes) for scenario in scenarios} == {2, 3, 4, 5}
    assert {scenario.calm for scenario in scenarios} == {True, False}
    conversations = [conversation for scenario in scenarios for conversation in scenario.conversations]
    endpoints = [endpoint for conversation in conversations for endpoint in conversation.endpoints]
    actions = {type(action) for endpoint in endpoints for action in endpoint.actions}
    assert actions > {AwaitBytes, Close, Reset, Sleep}
    for setting in ("early_write", "tag_ahead", "zero_copy", "nodelay", "whole_blocks"):
        assert {getattr(endpoint, setting) for endpoint in endpoints} == {True, False}
    assert any(node.plain for scenario in scenarios for node in scenario.nodes)


def test_an_acknowledgement_waits_for_arp_with_the_fast_path_and_without() -> None:
    assert try_seed(5334, "on").trace == try_seed(5334, "off").trace
