"""Sparse GD, DGC and ScaleCom, compared with the papers' formulas computed on one rank."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from softnic import gradients
from softnic.gradients import Floats, MethodError
from softnic.gradients.dgc import DGC
from softnic.gradients.scalecom import ScaleCom
from softnic.gradients.sparse import largest, selected_count
from softnic.mpi.communicator import Communicator
from tests.gradients.feeding import SIZES, bits, given, kept, mean, steps
from tests.mpi.ranks import run

DENSITY = 0.1
STEPS = 5


def picked(array: Floats) -> Floats:
    """Return 1 for the tenth of the elements that is sent, else 0."""
    mask = np.zeros(array.size, np.float32)
    mask[largest(array, selected_count(array.size, DENSITY, 0))] = 1
    return mask


def check(found: list[dict[str, Floats]], expected: list[dict[str, Floats]]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name in SIZES:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6 * float(np.abs(other[name]).max()))


def sparse_gd(size: int) -> list[dict[str, Floats]]:
    residuals = [{name: np.zeros(count, np.float32) for name, count in SIZES.items()} for _ in range(size)]
    results = []
    for step in range(STEPS):
        result = {name: np.zeros(count, np.float32) for name, count in SIZES.items()}
        for rank, residual in enumerate(residuals):
            for name, gradient in given(rank, step).items():
                residual[name] += gradient
                mask = picked(residual[name])
                result[name] += residual[name] * mask / np.float32(size)
                residual[name] *= 1 - mask
        results.append(result)
    return results


def dgc(size: int, nesterov: bool) -> list[dict[str, Floats]]:
    zeros = {name: np.zeros(count, np.float32) for name, count in SIZES.items()}
    u, v = ([{name: each.copy() for name, each in zeros.items()} for _ in range(size)] for _ in range(2))
    results = []
    for step in range(STEPS):
        result = {name: each.copy() for name, each in zeros.items()}
        for rank in range(size):
            for name, g in given(rank, step).items():
                m = np.float32(0.9)
                u[rank][name] = m * (u[rank][name] + g) if nesterov else m * u[rank][name] + g
                v[rank][name] = v[rank][name] + u[rank][name] + g * np.float32(nesterov)
                mask = picked(v[rank][name])
                result[name] += v[rank][name] * mask / np.float32(size)
                u[rank][name] *= 1 - mask
                v[rank][name] *= 1 - mask
        results.append(result)
    return results


def scalecom(size: int, beta: float) -> list[dict[str, Floats]]:
    m = [{name: np.zeros(count, np.float32) for name, count in SIZES.items()} for _ in range(size)]
    results = []
    for step in range(STEPS):
        result = {}
        for name in SIZES:
            p = [m[rank][name] + given(rank, step)[name] for rank in range(size)]
            mask = picked(p[step % size])
            result[name] = np.asarray(sum(each * mask for each in p) / np.float32(size), np.float32)
            for rank in range(size):
                m[rank][name] += np.float32(beta) * (given(rank, step)[name] - p[rank] * mask)
        results.append(result)
    return results


@pytest.mark.parametrize("size", [1, 3])
def test_sparse_gd_equals_its_formula(size: int) -> None:
    ranks = steps(size, f"sparse-gd:{DENSITY}", STEPS)
    check(ranks[0][0], sparse_gd(size))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_dgc_equals_its_formula(size: int, nesterov: bool) -> None:
    ranks = steps(size, f"dgc:{DENSITY},nesterov={int(nesterov)}", STEPS)
    check(ranks[0][0], dgc(size, nesterov))


@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize("size", [1, 3])
def test_scalecom_equals_its_formula(size: int, beta: float) -> None:
    ranks = steps(size, f"scalecom:{DENSITY},beta={beta}", STEPS)
    check(ranks[0][0], scalecom(size, beta))


@settings(max_examples=15)
@over(st.integers(1, 4), st.sampled_from(["sparse-gd", "scalecom"]), st.floats(0.001, 1), st.integers(0, 100))
def test_unsent_gradients_are_kept(size: int, name: str, density: float, floor: int) -> None:
    """The sum of the gradients equals N times the means plus the residuals, and ranks have the same bits."""
    ranks = steps(size, f"{name}:{density},floor={floor}", 3)
    what = "residual" if name == "sparse-gd" else "memory"
    for each in SIZES:
        went_in = sum(given(rank, step)[each].astype(np.float64) for rank in range(size) for step in range(3))
        out = size * sum(result[each].astype(np.float64) for result in ranks[0][0])
        left = sum(kept(method, what)[each].astype(np.float64) for _, method in ranks)
        np.testing.assert_allclose(out + left, went_in, atol=2e-6 * np.abs(went_in).max())
    assert len({bits(results) for results, _ in ranks}) == 1


def test_sending_all_elements_gives_the_mean() -> None:
    for text in ("sparse-gd:1", "scalecom:1", "dgc:1"):
        check(steps(3, text, 2)[0][0], [mean(3, step) for step in range(2)])


def test_dgc_sends_small_parameters_with_their_momentum() -> None:
    found = steps(2, "dgc:0.01,floor=1000", 3)[0][0]
    expected = [mean(2)]
    for step in range(1, 3):
        expected.append({name: expected[-1][name] * np.float32(0.9) + mean(2, step)[name] for name in SIZES})
    check(found, expected)


def test_dgc_warms_up() -> None:
    method = DGC(0.001, warmup=8)
    densities = []
    for _ in range(10):
        densities.append(method.density("first"))
        method._step({"first": np.zeros(1, np.float32)})
    assert densities == [0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.00390625, 0.00390625, 0.001, 0.001]
    assert DGC(0.3, warmup=4).density("first") == 0.3


def test_dgcs_full_steps_are_exact_and_the_next_one_is_sparse() -> None:
    """They are means with momentum, and leave nothing accumulated but the momentum."""
    ranks = steps(2, f"dgc:{DENSITY},full=2", 3)
    found = ranks[0][0]
    first = mean(2)
    second = {name: first[name] * np.float32(0.9) + mean(2, 1)[name] for name in SIZES}
    check(found[:2], [first, second])
    for _, method in ranks:
        assert set(method.state_dict()["kept"]) == {"momentum", "velocity"}
    for name, size in SIZES.items():
        assert np.count_nonzero(found[2][name]) <= 2 * max(1, math.ceil(DENSITY * size))


def test_dgc_warms_up_after_its_full_steps() -> None:
    method = DGC(0.001, warmup=4, full=2)
    densities = []
    for _ in range(8):
        densities.append(method.density("first"))
        method._step({"first": np.zeros(1, np.float32)})
    assert densities[2:] == [0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001]


def test_dgc_clips_by_the_norm_of_all_parameters() -> None:
    """With N ranks each may have 1 / sqrt(N) of the norm."""

    def program(comm: Communicator) -> float:
        method = gradients.get("dgc:1,clip=0.1,momentum=0")
        assert method.whole
        mine = given(0)
        method.average(comm, mine)
        return float(np.sqrt(sum(float(np.dot(each, each)) for each in mine.values())))

    assert run(4, program) == [pytest.approx(0.05)] * 4


def test_the_leader_of_scalecom_rotates() -> None:
    """Each rank's gradient is large at different elements, so the mean shows which rank selected."""

    def program(comm: Communicator) -> list[int]:
        method, led = ScaleCom(0.01), []
        for _ in range(6):
            mine = np.full(100, 1e-3, np.float32)
            mine[comm.rank] = 1
            method.average(comm, {"one": mine})
            led.append(int(np.argmax(mine)))
        return led

    assert run(3, program) == [[0, 1, 2, 0, 1, 2]] * 3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("text", ["sparse-gd:0.01", "dgc:0.01", "scalecom:0.01"])
def test_infinite_gradients_arrive_and_leave_no_residual(text: str, value: float) -> None:
    def program(comm: Communicator) -> tuple[bool, bool]:
        method = gradients.get(text)
        first, then = given(comm.rank), given(comm.rank, 1)
        if comm.rank == 0:
            first["first"][3:50] = value
        method.average(comm, first)
        method.average(comm, then)
        return bool(np.isfinite(first["first"]).all()), all(bool(np.isfinite(each).all()) for each in then.values())

    assert run(2, program) == [(False, True), (False, True)]


@pytest.mark.parametrize("text", ["sparse-gd:0", "dgc:2", "scalecom:-1", "scalecom:0.1,beta=0", "dgc:0.1,momentum=1"])
def test_invalid_fractions_are_refused(text: str) -> None:
    with pytest.raises(MethodError):
        gradients.get(text)
