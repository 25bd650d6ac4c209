"""Methods as rounds of messages: what every rank ends with, without a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from softnic import gradients
from softnic.gradients import Floats, MethodError
from softnic.gradients.rounds import MessageMethod, Rounds, RoundsPlace
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

METHODS = ["feedback:rht:4", "feedback:rht:3", "feedback:bounded:10", "feedback:bfp:4", "sparseloco:0.02,2,beta=1"]
COUNT = 5000


def drawn(rank: int, step: int, count: int = COUNT) -> Floats:
    return np.random.default_rng([rank, step]).standard_normal(count, np.float32)


def sums(running: Sequence[Rounds]) -> list[Floats]:
    """Carry the messages of all ranks until each has its sum."""
    messages = [next(each) for each in running]
    found: list[Floats] = []
    while not found:
        received, messages = list(zip(*messages, strict=True)), []
        for rounds, each in zip(running, received, strict=True):
            try:
                messages.append(rounds.send(each))
            except StopIteration as end:
                found.append(end.value)
    assert not messages
    return found


def made(text: str) -> MessageMethod:
    method = gradients.get(text)
    assert isinstance(method, MessageMethod)
    return method


@pytest.mark.parametrize("text", METHODS)
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_nothing_is_lost_and_all_ranks_have_the_same_bits(text: str, size: int) -> None:
    method, kept = made(text), [np.zeros(COUNT, np.float32) for _ in range(size)]
    went_in, came_out = np.zeros(COUNT), np.zeros(COUNT)
    for step in range(3):
        given = [drawn(rank, step) for rank in range(size)]
        found = sums([method.rounds(given[rank], kept[rank], RoundsPlace(rank, size)) for rank in range(size)])
        assert len({each.tobytes() for each in found}) == 1
        went_in += np.sum(given, axis=0, dtype=np.float64)
        came_out += found[0]
        assert all((given[rank] == drawn(rank, step)).all() for rank in range(size))
    np.testing.assert_allclose(came_out + np.sum(kept, axis=0, dtype=np.float64), went_in, atol=1e-4)


@settings(max_examples=30)
@over(st.sampled_from(METHODS), st.integers(1, 5), st.integers(1, 700))
def test_any_length_is_summed(text: str, size: int, count: int) -> None:
    method, kept = made(text), [np.zeros(count, np.float32) for _ in range(size)]
    given = [drawn(rank, 0, count) for rank in range(size)]
    found = sums([method.rounds(given[rank], kept[rank], RoundsPlace(rank, size)) for rank in range(size)])
    left = np.sum(kept, axis=0, dtype=np.float64)
    np.testing.assert_allclose(found[0] + left, np.sum(given, axis=0, dtype=np.float64), atol=1e-4)


@pytest.mark.parametrize("text", ["feedback:rht:4", "feedback:bfp:4", "sparseloco:0.02,2"])
def test_they_give_what_the_method_gives_by_a_communicator(text: str) -> None:
    """But for the order of additions."""

    def program(comm: Communicator) -> list[Floats]:
        method, means = gradients.get(text), []
        for step in range(2):
            means.append(drawn(comm.rank, step))
            method.average(comm, {"w": means[-1]})
        return means

    kept = [np.zeros(COUNT, np.float32) for _ in range(3)]
    for step, mean in enumerate(run(3, program)[0]):
        found = sums([made(text).rounds(drawn(rank, step), kept[rank], RoundsPlace(rank, 3)) for rank in range(3)])
        close = np.isclose(found[0] / 3, mean, atol=1e-5)
        assert close.mean() > 0.999  # a sum between two values of the codec may become the other one


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("text", METHODS)
def test_what_is_not_finite_does_not_stay(text: str, bad: float) -> None:
    kept = [np.zeros(COUNT, np.float32) for _ in range(2)]
    given = [drawn(rank, 0) for rank in range(2)]
    given[0][17] = bad
    found = sums([made(text).rounds(given[rank], kept[rank], RoundsPlace(rank, 2)) for rank in range(2)])
    assert not np.isfinite(found[0]).all()
    assert all(np.isfinite(each).all() for each in kept)


@pytest.mark.parametrize("text", METHODS)
def test_messages_of_other_settings_are_an_error(text: str) -> None:
    rounds = made(text).rounds(drawn(0, 0), np.zeros(COUNT, np.float32), RoundsPlace(0, 2))
    (own, _) = next(rounds)
    with pytest.raises(MethodError, match="ranks differ in settings"):
        rounds.send([own, b"\1\2\3"])


def test_automatic_bounds_have_no_rounds() -> None:
    with pytest.raises(MethodError, match="no rounds of messages"):
        made("feedback:relative:3").rounds(drawn(0, 0), np.zeros(COUNT, np.float32), RoundsPlace(0, 2))
