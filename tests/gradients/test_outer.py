"""Outer steps of local training: DiLoCo's formula, streamed fragments, and states."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from softnic import gradients
from softnic.gradients import Floats, MethodError
from softnic.gradients.outer import Outer, StreamingOuter, _divided
from softnic.mpi.communicator import Communicator
from tests.gradients.feeding import SIZES, bits, given
from tests.mpi.ranks import run

EVERY, STEPS = 4, 12
RATE, MOMENTUM = np.float32(0.7), np.float32(0.9)


def begun() -> dict[str, Floats]:
    return given(99)


def inner(weights: dict[str, Floats], rank: int, step: int) -> None:
    """A rank's own step: it goes to other places than the others."""
    for name, gradient in given(rank, step).items():
        weights[name] -= np.float32(0.1) * gradient


def trained(size: int, make: Any) -> list[tuple[dict[str, Floats], Any]]:
    """Return each rank's weights after STEPS inner steps, and its outer object."""

    def program(comm: Communicator) -> tuple[dict[str, Floats], Any]:
        weights = begun()
        outer = make(weights)
        for step in range(STEPS):
            inner(weights, comm.rank, step)
            outer.step(comm)
        if isinstance(outer, StreamingOuter):
            outer.finish(comm)
        return weights, outer

    return run(size, program)


@pytest.mark.parametrize("size", [1, 3])
def test_outer_steps_are_nesterovs_of_the_mean_way(size: int) -> None:
    found = trained(size, lambda weights: Outer(gradients.get("exact"), weights, EVERY))
    anchor = {name: array.astype(np.float64) for name, array in begun().items()}
    velocity: dict[str, Any] = dict.fromkeys(anchor, 0.0)
    for start in range(0, STEPS, EVERY):
        for name in anchor:
            ways = [
                sum(0.1 * given(rank, step)[name].astype(np.float64) for step in range(start, start + EVERY))
                for rank in range(size)
            ]
            mean = sum(ways) / size
            velocity[name] = 0.9 * velocity[name] + mean
            anchor[name] = anchor[name] - 0.7 * (mean + 0.9 * velocity[name])
    for name in SIZES:
        np.testing.assert_allclose(found[0][0][name], anchor[name], rtol=1e-4, atol=1e-6 * np.abs(anchor[name]).max())
    assert len({bits([weights]) for weights, _ in found}) == 1


@pytest.mark.parametrize("method", ["feedback:rht:4", "feedback:bounded:10", "sparseloco:0.1"])
def test_ranks_agree_by_every_method(method: str) -> None:
    found = trained(3, lambda weights: Outer(gradients.get(method), weights, EVERY, 1.0, 0.0))
    assert len({bits([weights]) for weights, _ in found}) == 1
    assert found[0][1].method.stats.calls == STEPS // EVERY


@pytest.mark.parametrize("method", ["feedback:rht:3", "sparseloco:0.1,2,beta=1"])
@pytest.mark.parametrize("more", [0, 3])
def test_what_a_rank_has_not_sent_stays_in_its_weights_until_the_end(method: str, more: int) -> None:
    """Then all have the mean of all ways, but for the rounding of the last exchange."""

    def program(comm: Communicator) -> tuple[list[float], bytes, dict[str, Floats]]:
        weights = begun()
        outer = Outer(gradients.get(method), weights, EVERY, 1.0, 0.0, own=True)
        differ = []
        for step in range(STEPS + more):
            inner(weights, comm.rank, step)
            if outer.step(comm):
                first = comm.bcast(weights["first"], 0)
                differ.append(float(np.abs(weights["first"] - first).max()))
        assert outer.finish(comm, "raw") > 0
        return differ, bits([weights]), weights

    found = run(3, program)
    assert min(found[1][0]) > 0
    assert len({end for _, end, _ in found}) == 1
    for name, start in begun().items():
        ways = [0.1 * given(rank, step)[name].astype(np.float64) for rank in range(3) for step in range(STEPS + more)]
        wrong = found[0][2][name] - (start - np.sum(ways, axis=0) / 3)
        assert np.abs(wrong).max() < 1e-5 * max(1.0, float(np.abs(start).max()))


def test_a_last_agreement_without_own_weights_has_the_steps_since() -> None:
    def program(comm: Communicator) -> tuple[int, dict[str, Floats]]:
        weights = begun()
        outer = Outer(gradients.get("exact"), weights, EVERY, 1.0, 0.0)
        for step in range(2):
            inner(weights, comm.rank, step)
            outer.step(comm)
        return outer.finish(comm, "raw"), weights

    for _, weights in run(2, program):
        for name, start in begun().items():
            ways = [0.1 * given(rank, step)[name] for rank in range(2) for step in range(2)]
            np.testing.assert_allclose(weights[name], start - np.sum(ways, axis=0) / 2, rtol=1e-4, atol=1e-6)


def test_own_weights_need_a_method_that_keeps_something() -> None:
    with pytest.raises(MethodError, match="by feedback or sparseloco, not by exact"):
        Outer(gradients.get("exact"), begun(), EVERY, own=True)


def test_it_continues_from_a_state_bit_by_bit() -> None:
    def program(comm: Communicator) -> list[bytes]:
        weights = begun()
        outer = Outer(gradients.get("sparseloco:0.1"), weights, EVERY)
        for step in range(6):
            inner(weights, comm.rank, step)
            outer.step(comm)
        saved = pickle.dumps((weights, outer.state_dict()))
        ends = []
        for again in (False, True):
            if again:
                weights, state = pickle.loads(saved)
                outer = Outer(gradients.get("sparseloco:0.1"), weights, EVERY)
                outer.load_state_dict(state)
            for step in range(6, STEPS):
                inner(weights, comm.rank, step)
                outer.step(comm)
            ends.append(bits([weights]))
        return ends

    for one, other in run(2, program):
        assert one == other


def test_streamed_fragments_without_delay_and_mixing_are_outer_steps_at_other_times() -> None:
    """One fragment, used at once, is DiLoCo."""
    plain = trained(3, lambda weights: Outer(gradients.get("exact"), weights, EVERY))
    streamed = trained(3, lambda weights: StreamingOuter("", weights, EVERY, 1, 0, 0.0))
    for name in SIZES:
        np.testing.assert_allclose(streamed[0][0][name], plain[0][0][name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("codec", ["", "rht:4"])
def test_streamed_fragments_agree_where_nothing_is_mixed(codec: str) -> None:
    found = trained(3, lambda weights: StreamingOuter(codec, weights, EVERY, 2, 1, 0.0))
    anchors = [outer._optimizer.anchors for _, outer in found]
    assert len({bits([each]) for each in anchors}) == 1
    assert all(outer.sent_bytes > 0 for _, outer in found)


def test_mixing_keeps_a_share_of_what_a_rank_has_found() -> None:
    own = trained(2, lambda weights: StreamingOuter("", weights, EVERY, 1, 1, 1.0))
    for rank, (weights, _) in enumerate(own):  # nothing of the others is taken
        alone = begun()
        for step in range(STEPS):
            inner(alone, rank, step)
        assert bits([weights]) == bits([alone])


@over(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.data())
def test_fragments_are_consecutive_and_none_is_empty(sizes: list[int], data: st.DataObject) -> None:
    weights = {str(index): np.zeros(size, np.float32) for index, size in enumerate(sizes)}
    count = data.draw(st.integers(1, len(sizes)))
    groups = _divided(weights, count)
    assert len(groups) == count
    assert all(groups)
    assert [name for group in groups for name in group] == list(weights)


def test_fragments_are_about_equal() -> None:
    groups = _divided({str(index): np.zeros(100, np.float32) for index in range(12)}, 4)
    assert [len(group) for group in groups] == [3, 3, 3, 3]
    assert all(int(a[-1]) < int(b[0]) for a, b in pairwise(groups))


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: Outer(gradients.get("exact"), weights, 0),
        lambda weights: Outer(gradients.get("exact"), weights, 1, 0.0),
        lambda weights: Outer(gradients.get("exact"), weights, 1, 1.0, 1.0),
        lambda weights: StreamingOuter("", weights, 4, 5),
        lambda weights: StreamingOuter("", weights, 4, 1, 4),
        lambda weights: StreamingOuter("", weights, 4, 1, 0, 1.5),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(MethodError):
        make(begun())
