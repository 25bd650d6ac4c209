"""Compressed means, error feedback and automatic bounds: equal bits on all ranks, and no gradient lost."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from softnic import gradients
from softnic.codecs import CodecError
from softnic.gradients import Floats, MethodError
from softnic.gradients.bounds import RelativeBound, rounding
from softnic.mpi.communicator import Communicator
from tests.gradients.feeding import SIZES, bits, given, kept, mean, steps
from tests.mpi.ranks import run

CODECS = ["bounded:10", "inceptionn:10", "bfp:4", "truncate:10", "rht:4", "mx:e2m1", "raw", "relative:3", "relative:-2"]


def lost(size: int, text: str, count: int) -> float:
    """Return the largest value that is neither in the means nor in the residuals, relative to the largest sum: of the
    parameter, or of all parameters if the codec's blocks reach over them."""
    ranks = steps(size, text, count)
    largest, errors = {}, {}
    for name in SIZES:
        went_in = sum(given(rank, step)[name].astype(np.float64) for rank in range(size) for step in range(count))
        came_out = size * sum(result[name].astype(np.float64) for result in ranks[0][0])
        left = sum(kept(method, "residual")[name].astype(np.float64) for _, method in ranks)
        largest[name], errors[name] = np.abs(went_in).max(), np.abs(went_in - came_out - left).max()
    over_all = max(largest.values()) if "rht" in text else 0.0
    return max(float(errors[name] / max(largest[name], over_all)) for name in SIZES)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 3])
def test_feedback_loses_nothing_and_ranks_agree(size: int, codec: str) -> None:
    assert lost(size, f"feedback:{codec}", 3) < 2e-6
    ranks = steps(size, f"feedback:{codec}", 3)
    assert len({bits(results) for results, _ in ranks}) == 1


@settings(max_examples=15)
@over(st.integers(1, 4), st.sampled_from(CODECS), st.integers(1, 4))
def test_feedback_loses_nothing_with_any_number_of_ranks_and_codec(size: int, codec: str, count: int) -> None:
    assert lost(size, f"feedback:{codec}", count) < 1e-5


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_mean_is_the_same_on_every_rank(codec: str) -> None:
    ranks = steps(3, f"compressed:{codec}", 2)
    assert len({bits(results) for results, _ in ranks}) == 1


def test_the_error_of_the_mean_is_within_the_bound() -> None:
    for name, expected in mean(3).items():
        assert np.abs(steps(3, "compressed:bounded:10", 1)[0][0][0][name] - expected).max() <= 2.0**-10


@pytest.mark.parametrize("bits_", [-2, 0, 3, 8])
def test_automatic_bounds_follow_each_parameter(bits_: int) -> None:
    """A parameter of any magnitude has an error within its own bound, which is not needlessly tight."""
    found, expected = steps(3, f"compressed:relative:{bits_}", 1)[0][0][0], mean(3)
    for name, size in SIZES.items():
        every = np.concatenate([given(rank)[name] for rank in range(3)])
        bound = float(np.sqrt(np.mean(every.astype(np.float64) ** 2))) * 2.0**-bits_
        error = float(np.abs(found[name] - expected[name]).max())
        assert error <= bound * 1.0001
        assert size < 50 or error > bound / 16


def test_feedback_sends_gradients_that_are_always_below_the_bound() -> None:
    """A gradient of a tenth of the bound never arrives without feedback."""

    def program(comm: Communicator) -> list[float]:
        arrived = []
        for text in ("compressed:bounded:5", "feedback:bounded:5"):
            method, total = gradients.get(text), np.zeros(40, np.float32)
            for _ in range(100):
                small = np.full(40, 0.003, np.float32)
                method.average(comm, {"small": small})
                total += small
            arrived.append(float(total.mean()))
        return arrived

    without, with_feedback = run(2, program)[0]
    assert without == 0
    assert with_feedback == pytest.approx(0.3, abs=2.0**-5)


def test_a_residual_does_not_raise_its_own_bound() -> None:
    """All elements drift equally, each below the bound of one step, and are sent after some steps."""

    def program(comm: Communicator) -> Floats:
        method, total = gradients.get("feedback:relative:-3"), np.zeros(64, np.float32)
        for _ in range(50):
            drift = np.full(64, 1e-4, np.float32)
            method.average(comm, {"drift": drift})
            total += drift
        return total

    assert run(2, program)[0].mean() == pytest.approx(50e-4, abs=16e-4)


def test_bounds_follow_gradients_by_a_step_without_an_exchange_of_their_own() -> None:
    """The residual of a step is within the bound of the previous one for any gradients, and the bound is not needlessly
    tight if they are as large as then. Without gradients the bound does not change."""
    sizes = [1.0, 1.0, 1e-6, 1e-6, 10.0, 10.0, 0.0, 10.0, 1e-7, 1e-7]
    measured = [1.0, 1.0, 1.0, 1e-6, 1e-6, 10.0, 10.0, 10.0, 10.0, 1e-7]
    bits_, draw = 2, np.random.default_rng(6).standard_normal((3, 1000))

    def program(comm: Communicator) -> tuple[list[float], int]:
        method, worst = gradients.get(f"feedback:relative:{bits_}"), []
        with mock.patch.object(comm, "Allreduce", wraps=comm.Allreduce) as agreed:
            for size in sizes:
                method.average(comm, {"all": (draw[comm.rank] * size).astype(np.float32)})
                worst.append(float(np.abs(method.kept("residual", "all", 1000)).max()))
        return worst, agreed.call_count

    for worst, agreed in run(3, program):
        assert agreed == 1
        for left, size, before in zip(worst, sizes, measured, strict=True):
            bound = before * float(np.sqrt(np.mean(draw**2))) * 2.0**-bits_
            assert left <= bound * 1.0001
            assert left > bound / 8 or size != before


def test_ranks_may_have_gradients_of_different_magnitudes() -> None:
    """The bound is derived from all ranks; one without gradients, or with infinite ones, does not contribute."""

    def program(comm: Communicator) -> float:
        method = gradients.get("feedback:relative:0")
        for factor in (1.0, (1e-3, 0.0, np.inf)[comm.rank], 1e-3):
            draw = np.random.default_rng(comm.rank).standard_normal(1000)
            method.average(comm, {"all": (draw * factor).astype(np.float32)})
        return float(np.abs(method.kept("residual", "all", 1000)).max())

    for left in run(3, program):
        assert 1e-3 / 16 < left < 2e-3


@pytest.mark.parametrize("text", ["feedback:bounded:10", "feedback:relative:3"])
def test_infinite_gradients_arrive_and_leave_no_residual(text: str) -> None:
    def program(comm: Communicator) -> tuple[bool, bool]:
        method = gradients.get(text)
        first, then = given(comm.rank), given(comm.rank, 1)
        if comm.rank:
            first["first"][3], first["fourth"][5] = np.inf, np.nan
        method.average(comm, first)
        method.average(comm, then)
        return (
            bool(np.isfinite(first["first"][3]) or np.isfinite(first["fourth"][5])),
            all(bool(np.isfinite(gradient).all()) for gradient in then.values()),
        )

    assert run(2, program) == [(False, True), (False, True)]


def test_bounds_of_tiny_and_huge_gradients() -> None:
    def program(comm: Communicator) -> dict[str, Floats]:
        draw = np.random.default_rng(5).standard_normal(64).astype(np.float32)
        mine = {f"{scale}": draw * np.float32(scale) for scale in (1e-25, 1e25, 0.0)}
        gradients.get("compressed:relative:4").average(comm, mine)
        return {name: mine[name] / np.float32(float(name) or 1) - draw * np.float32(float(name) > 0) for name in mine}

    for error in run(2, program)[0].values():
        assert np.abs(error).max() <= 2.0**-4


@pytest.mark.parametrize("text", ["relative:x", "relative:99", "relative:1.5"])
def test_invalid_bounds_are_refused(text: str) -> None:
    with pytest.raises(MethodError):
        rounding(text)
    with pytest.raises(CodecError):
        rounding("nothing:3")
    assert isinstance(rounding("relative"), RelativeBound)


def test_stats_report_the_savings_of_a_codec() -> None:
    _, method = steps(2, "feedback:relative:-2", 2)[0]
    assert method.stats.calls == 2
    assert 3 < method.stats.ratio < 64
    assert method.stats.last["residual"] > 0


@pytest.mark.parametrize("codec", ["raw", "truncate:10", "bfp:8", "rht:4", "bounded:10"])
def test_a_sum_that_overflows_leaves_no_residual(codec: str) -> None:
    """Each rank's gradient is finite, the sum of two is not: later steps are as after zeros."""

    def program(comm: Communicator) -> tuple[bool, Floats]:
        method = gradients.get(f"feedback:{codec}")
        first = {"weight": np.full(512, 3e38, np.float32)}
        method.average(comm, first)
        finite = bool(np.isfinite(method.kept("residual", "weight", 512)).all())
        later = {"weight": np.zeros(512, np.float32)}
        for _ in range(2):
            later["weight"][:] = 0
            method.average(comm, later)
        return finite, later["weight"]

    for finite, later in run(2, program):
        assert finite
        assert np.isfinite(later).all()
