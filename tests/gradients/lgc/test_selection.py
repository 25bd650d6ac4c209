"""The selection of gradients, its order, and the encoding of indices."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.gradients import Floats, MethodError
from softnic.gradients.lgc.selection import (
    Layout,
    largest,
    layer_of,
    layout,
    pack_indices,
    scales,
    select,
    selected_of,
    spread,
    unpack_indices,
)

SIZES = {"a.weight": 50, "a.bias": 5, "b.weight": 300, "c.weight": 2000, "c.bias": 10, "d.weight": 100, "d.bias": 10}


def parameters(seed: int = 0, sizes: dict[str, int] | None = None) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(size, dtype=np.float32) for name, size in (sizes or SIZES).items()}


def vector_of(found: Layout, given: dict[str, Floats]) -> Floats:
    return np.concatenate([given[name] for name in found.names])


def test_the_first_and_the_last_layer_are_separate() -> None:
    found = layout(parameters(), 0.01)
    assert found.first == ("a.weight", "a.bias")
    assert found.names == ("b.weight", "c.weight", "c.bias", "d.weight", "d.bias")
    assert found.starts == (0, 300, 2300, 2310, 2410, 2420)
    assert found.counts == (3, 20, 1, 1, 1)
    assert (found.covered_names, found.covered, found.covered_words, found.selected) == (3, 24, 2310, 26)


def test_layers_can_be_named() -> None:
    found = layout(parameters(), 0.01, first="c", last="a")
    assert found.first == ("c.weight", "c.bias")
    assert found.names == ("b.weight", "d.weight", "d.bias", "a.weight", "a.bias")
    with pytest.raises(MethodError, match="no layer 'e'; there are a, b, c, d"):
        layout(parameters(), 0.01, last="e")


def test_a_single_layer_is_the_first() -> None:
    found = layout(parameters(sizes={"a.weight": 50, "a.bias": 5}), 0.01)
    assert (found.first, found.names, found.selected) == (("a.weight", "a.bias"), (), 0)


def test_layers_of_names() -> None:
    assert [layer_of(name) for name in ("0.inside.1.weight", "places")] == ["0.inside.1", "places"]


@pytest.mark.parametrize(("size", "share", "count"), [(10_000, 0.001, 10), (10, 0.001, 1), (1, 1.0, 1), (7, 1.0, 7)])
def test_at_least_one_is_selected(size: int, share: float, count: int) -> None:
    assert selected_of(size, share) == count


@pytest.mark.parametrize("order", ["value", "index"])
def test_the_largest_magnitudes_are_selected_in_order(order: str) -> None:
    found = layout(parameters(), 0.01)
    vector = vector_of(found, parameters())
    indices = select(vector, found, order)
    for _, part, taken in found.parts():
        mine = indices[taken].astype(int)
        others = np.delete(vector[part], mine - part.start)
        assert np.abs(vector[mine]).min() >= np.abs(others).max()
        in_order = vector[mine] if order == "value" else mine
        assert np.all(np.diff(in_order) >= 0)


def test_scales_are_root_mean_squares() -> None:
    found = layout(parameters(), 0.01)
    vector = vector_of(found, parameters())
    values = vector[select(vector, found)]
    values[-3] = 0  # c.bias, of which one is selected; then the last layer's two
    measured = scales(values, found)
    assert measured[:2] == pytest.approx([np.sqrt(np.mean(values[:3] ** 2)), np.sqrt(np.mean(values[3:23] ** 2))])
    assert measured[2] == 1
    assert spread(measured, found).tolist() == [measured[0]] * 3 + [measured[1]] * 20 + [1]


def test_the_innovation_is_the_largest_tenth_of_each() -> None:
    found = layout(parameters(), 0.01)
    vector = vector_of(found, parameters())
    values = vector[select(vector, found)]
    chosen = largest(values[: found.covered], found, 0.1)
    assert [int(chosen[part].sum()) for part in found.covered_parts()] == [1, 2, 1]
    second = values[3:23]
    assert np.abs(second[chosen[3:23]]).min() >= np.abs(second[~chosen[3:23]]).max()


@given(st.integers(0, 2**32 - 1), st.sampled_from(["value", "index"]), st.floats(0.001, 1))
@settings(max_examples=50, deadline=None)
def test_indices_are_restored(seed: int, order: str, share: float) -> None:
    given_here = parameters(seed)
    found = layout(given_here, share)
    indices = select(vector_of(found, given_here), found, order)
    np.testing.assert_array_equal(unpack_indices(pack_indices(indices, found, order), found, order), indices)


def test_indices_take_little_more_than_their_entropy() -> None:
    """For 1,000 of a million: 11.4 bits each for the set, and 8.5 for the order."""
    given_here = {"a": np.zeros(1, np.float32), **parameters(sizes={"b": 1_000_000}), "c": np.zeros(1, np.float32)}
    found = layout(given_here, 0.001)
    vector = vector_of(found, given_here)
    by_index = len(pack_indices(select(vector, found, "index"), found, "index"))
    by_value = len(pack_indices(select(vector, found), found))
    assert 11.4 * 1001 / 8 < by_index < 13.5 * 1001 / 8
    assert 19.9 * 1001 / 8 < by_value < 21.5 * 1001 / 8, by_value


@pytest.mark.parametrize(
    "data",
    [b"", b"nothing", zlib.compress(b"\0" * 103), zlib.compress(b"\0" * 105), zlib.compress(b"\xff" * 104)],
    ids=["empty", "no DEFLATE", "short", "long", "outside"],
)
def test_invalid_packed_indices_are_refused(data: bytes) -> None:
    found = layout(parameters(), 0.01)
    with pytest.raises(MethodError, match="a rank sent"):
        unpack_indices(data, found)


def test_a_decompression_bomb_is_refused() -> None:
    with pytest.raises(MethodError, match="other than 26 indices"):
        unpack_indices(zlib.compress(b"\0" * (1 << 24), 9), layout(parameters(), 0.01))
