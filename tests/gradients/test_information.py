"""Mutual information between nodes' gradients, compared with known values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from softnic.gradients.information import PAPER_LEVELS, estimate
from softnic.gradients.method import Floats, MethodError


def normal(seed: int, size: int = 20_000) -> Floats:
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def test_equal_values_share_all_information() -> None:
    found = estimate(normal(1), normal(1))
    assert found.conditional == pytest.approx(0, abs=1e-9)
    assert found.common == pytest.approx(1)
    assert found.mutual == pytest.approx(found.entropy)


def test_independent_values_share_no_information_beyond_chance() -> None:
    found = estimate(normal(1), normal(2), levels=32)
    assert found.common_beyond_chance < 0.01
    assert found.mutual == pytest.approx(found.by_chance, abs=0.02)


def test_correlated_normal_values_share_the_theoretical_information() -> None:
    """I = -1/2 log2(1 - rho^2) for two normal variables; a histogram loses a little."""
    rho = 0.9
    a, noise = normal(1, 200_000), normal(2, 200_000)
    b = (rho * a + math.sqrt(1 - rho**2) * noise).astype(np.float32)
    found = estimate(a, b, levels=64)
    assert found.mutual - found.by_chance == pytest.approx(-0.5 * math.log2(1 - rho**2), abs=0.06)


def test_with_the_papers_levels_noise_looks_common() -> None:
    found = estimate(normal(1), normal(2), levels=PAPER_LEVELS)
    assert found.common > 0.99
    assert found.common_beyond_chance < 0.01
    assert found.entropy == pytest.approx(math.log2(20_000), abs=0.01)


def test_two_values_by_hand() -> None:
    a = np.array([0, 0, 1, 1], np.float32)
    b = np.array([0, 1, 1, 1], np.float32)
    found = estimate(a, b, levels=2)
    assert found.entropy == pytest.approx(2 - 0.75 * math.log2(3))
    assert found.conditional == pytest.approx(0.5)


def test_constants_have_no_information() -> None:
    found = estimate(np.ones(5, np.float32), np.ones(5, np.float32))
    assert (found.entropy, found.mutual, found.common, found.common_beyond_chance) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("a", "b", "levels"),
    [
        ([1.0], [1.0, 2.0], 4),
        ([], [], 4),
        ([1.0], [1.0], 1),
        ([1.0], [1.0], PAPER_LEVELS + 1),
        ([math.inf], [1.0], 4),
    ],
)
def test_inputs_that_cannot_be_estimated_are_refused(a: list[float], b: list[float], levels: int) -> None:
    with pytest.raises(MethodError):
        estimate(np.array(a, np.float32), np.array(b, np.float32), levels)
