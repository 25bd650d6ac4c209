"""Error feedback in one pass, against the calls that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic.codecs.feedback import quantize, round_parts, supported
from softnic.codecs.registry import Floats

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


@given(
    sizes=st.lists(st.sampled_from([0, 1, 7, 64, 100, 128, 1000, 2048, 5000]), max_size=5),
    padding=st.sampled_from([0, 1, 128, 3000]),
    text=st.sampled_from(["raw", "inceptionn:10", "bfp:4", "truncate:10", "rht:3", "rht:6", "exact:32", "mx:e2m1"]),
    seed=st.integers(0, 2**32),
)
def test_parts_are_rounded_as_one_array(sizes: list[int], padding: int, text: str, seed: int) -> None:
    """As p = g + e; c = decode(encode(p)); e = p - c would do it, with the parts one after the other."""
    codec, draw = codecs.get(text), np.random.default_rng(seed)
    given_, kept = ([draw.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(2))
    p = np.concatenate([*(g + e for g, e in zip(given_, kept, strict=True)), np.zeros(padding)]).astype(np.float32)
    out = np.full(p.size, np.nan, np.float32)
    used = round_parts(codec, given_, kept, out)
    rounded = codec.roundtrip(p)
    assert out.tobytes() == rounded.tobytes()
    left = np.concatenate([*kept, np.zeros(0, np.float32)])
    np.testing.assert_array_equal(left, (p - rounded)[: left.size])
    assert used == len(codec.encode(p))


def test_parts_keep_nothing_of_what_is_no_number() -> None:
    gradient = np.ones(256, np.float32)
    gradient[[3, 200]] = np.inf, np.nan
    residual, out = np.full(256, 0.25, np.float32), np.empty(256, np.float32)
    round_parts(codecs.get("rht:4"), [gradient], [residual], out)
    assert np.isinf(out[3])
    assert np.isnan(out[200])
    assert not residual[[3, 200]].any()
    assert np.isfinite(residual).all()


def test_parts_that_do_not_fit_are_refused() -> None:
    codec, array = codecs.get("rht:4"), np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="7 words are not enough for 8"):
        round_parts(codec, [array], [array.copy()], array[:7].copy())
    with pytest.raises(ValueError, match="4 words go with 8"):
        round_parts(codec, [array], [array[:4].copy()], array.copy())
    with pytest.raises(TypeError, match="float64"):
        round_parts(codec, [array], [array.copy()], np.zeros(8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="zip"):
        round_parts(codec, [array], [], array.copy())
