"""Error feedback in one pass, against the calls that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from tests.facades.codecs import Floats, quantize, supported

STEPS = 2.0**14
"""To one, of bounded:15."""


def drawn(count: int, seed: int = 3) -> tuple[Floats, Floats]:
    """Gradients and residuals from far below the step of bounded:15 to far above what it rounds."""
    draw = np.random.default_rng(seed)
    sizes = np.exp2(draw.integers(-20, 30, count))
    gradient = draw.standard_normal(count) * sizes * (draw.random(count) < 0.7)
    return gradient.astype(np.float32), (draw.standard_normal(count) / STEPS / 2).astype(np.float32)


@given(st.integers(0, 300), st.integers(-3, 3), st.integers(0, 99))
def test_it_rounds_to_steps_and_keeps_the_rest(count: int, exponent: int, seed: int) -> None:
    gradient, residual = drawn(count, seed)
    scale, codec = 2.0**exponent, codecs.get("bounded:15")
    p, out = gradient + residual, np.empty(count, np.float32)
    kept = residual.copy()
    used = quantize(codec, scale, gradient, kept, out)
    rounded = (np.rint(p.astype(np.float64) * scale * STEPS) / STEPS).astype(np.float32)
    np.testing.assert_array_equal(out, rounded)
    np.testing.assert_array_equal(kept, p - rounded / np.float32(scale))
    np.testing.assert_array_equal(codec.roundtrip(out), out)
    assert used == len(codec.encode(out))


@pytest.mark.parametrize("text", ["bounded:1", "bounded:10", "bounded:23"])
def test_it_does_as_the_codec_where_that_rounds(text: str) -> None:
    codec, (gradient, residual) = codecs.get(text), drawn(5000)
    p = gradient + residual
    out, kept = np.empty_like(p), residual.copy()
    quantize(codec, 1.0, gradient, kept, out)
    rounds = np.abs(p) < 2.0 ** (16 - codec.parameter) * 0.999
    assert 0 < rounds.sum() < rounds.size
    np.testing.assert_array_equal(out[rounds], codec.roundtrip(p)[rounds])
    assert np.abs(kept).max() <= 2.0**-codec.parameter


def test_sums_of_what_it_rounded_are_left_alone() -> None:
    codec, outs = codecs.get("bounded:15"), []
    for seed in range(4):
        gradient, residual = drawn(5000, seed)
        gradient = np.clip(gradient, -200, 200)
        outs.append(np.empty_like(gradient))
        quantize(codec, 1.0, gradient, residual, outs[-1])
    total = np.sum(outs, axis=0)
    np.testing.assert_array_equal(total, np.sum(outs, axis=0, dtype=np.float64))
    np.testing.assert_array_equal(codec.roundtrip(total), total)


def test_what_is_no_number_passes_and_is_not_kept() -> None:
    gradient = np.array([np.inf, -np.inf, np.nan, 1.0, 3e38], np.float32)
    residual, out = np.array([1.0, 1.0, 1.0, np.nan, 3e38], np.float32), np.empty(5, np.float32)
    with np.errstate(over="ignore"):
        used = quantize(codecs.get("bounded:10"), 1.0, gradient, residual, out)
    np.testing.assert_array_equal(out, np.array([np.inf, -np.inf, np.nan, np.nan, np.inf], np.float32))
    assert not residual.any()
    assert used == len(codecs.get("bounded:10").encode(out))


def test_arguments_that_do_not_fit_are_refused() -> None:
    codec, array = codecs.get("bounded:10"), np.zeros(8, np.float32)
    assert [supported(codecs.get(text)) for text in ("bounded:1", "bfp:7")] == [True, False]
    with pytest.raises(ValueError, match="bfp:7 does not round"):
        quantize(codecs.get("bfp:7"), 1.0, array, array.copy(), array.copy())
    with pytest.raises(ValueError, match="4 words go with 8"):
        quantize(codec, 1.0, array, array.copy(), array[:4].copy())
    with pytest.raises(TypeError, match="float64"):
        quantize(codec, 1.0, array, np.zeros(8), array.copy())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="contiguous"):
        quantize(codec, 1.0, array, np.zeros(16, np.float32)[::2], array.copy())
