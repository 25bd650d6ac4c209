"""AWP, compared with cases computed by hand: each layer is one number, which is its own norm."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from softnic.gradients.awp import AWP, Array, FixedPrecision, Monitor, leading, oracle, precision, whole_bytes


def layer(*values: float) -> Array:
    return np.array(values, np.float32)


def bits(policy: AWP, norms: Sequence[float], name: str = "fc") -> list[int]:
    """Return the bits of a layer after each update with these norms."""
    found = []
    for norm in norms:
        policy.observe({name: layer(norm)})
        found.append(policy.bits(name))
    return found


def test_precision_grows_after_an_interval_of_small_changes() -> None:
    """T = 0.1: changes of 0 and 0.0625 are below, one of 0.25 is not. Two of them make an interval."""
    # changes:                              -  0     0.25   0.0625  0       0.0625      0
    assert bits(AWP(0.1, 2), [16, 16, 20, 21.25, 21.25, 22.578125, 22.578125]) == [8, 8, 8, 16, 16, 24, 24]


def test_the_counter_is_not_reset_by_a_large_change() -> None:
    """Algorithm 1 counts how often the change is small; the steps need not be consecutive."""
    assert bits(AWP(0.1, 2), [1, 1, 8, 64, 64]) == [8, 8, 8, 8, 16]


def test_the_change_has_a_sign() -> None:
    """With a negative T, as in section V-A, only norms that shrink fast enough are counted."""
    assert bits(AWP(-0.05, 1), [100, 96, 100, 90, 200]) == [8, 8, 8, 16, 16]


def test_a_change_that_equals_the_threshold_is_not_counted() -> None:
    assert bits(AWP(0.25, 1), [4, 5, 6]) == [8, 8, 16]


def test_there_are_no_more_than_32_bits() -> None:
    assert bits(AWP(0.1, 1), [1] * 6) == [8, 16, 24, 32, 32, 32]
    assert bits(AWP(0.1, 1, more_bits=20, first_bits=16), [1] * 3) == [16, 32, 32]


def test_bits_are_sent_in_whole_bytes() -> None:
    """Section III-A: 14 bits need two bytes."""
    assert [whole_bytes(n) for n in (1, 8, 9, 14, 16, 17, 31, 32, 40)] == [8, 8, 16, 16, 16, 24, 32, 32, 32]
    assert bits(AWP(0.1, 1, more_bits=6), [1] * 5) == [8, 16, 24, 32, 32]


def test_layers_grow_independently() -> None:
    policy = AWP(0.1, 1)
    for norm in (1, 2, 4):
        policy.observe({"grows": layer(norm), "rests": layer(1)})
    assert (policy.bits("grows"), policy.bits("rests")) == (8, 24)


def test_the_precision_of_a_block_follows_the_norm_of_all_its_weights() -> None:
    """3 and 4 make 5. Then 6 and 2.5 make 6.5: alone the second shrinks, together they grow."""
    first, then = {"b.1.conv1": layer(3), "b.1.conv2": layer(4)}, {"b.1.conv1": layer(6), "b.1.conv2": layer(2.5)}
    blocks, layers = AWP(0.0, 1, blocks=leading(2)), AWP(0.0, 1)
    for weights in (first, then):
        blocks.observe(weights)
        layers.observe(weights)
    assert [blocks.bits(name) for name in first] == [8, 8]
    assert [layers.bits(name) for name in first] == [8, 16]
    assert list(blocks.state_dict()["norms"].items()) == [("b.1", 6.5)]


def test_blocks_by_leading_parts_of_names() -> None:
    names = ["conv1.weight", "layer1.0.conv1.weight", "layer1.0.conv2.weight", "layer1.1.conv1.weight"]
    assert [leading(2)(name) for name in names] == ["conv1.weight", "layer1.0", "layer1.0", "layer1.1"]


def test_norms_are_computed_in_double_precision() -> None:
    """A change of 1e-6 of the norm of a million numbers is seen; a sum in float32 would not show it."""
    weights = np.random.default_rng(1).standard_normal((1000, 1000), dtype=np.float32)
    below, above = AWP(0.9e-6, 1), AWP(1.1e-6, 1)
    for policy in (below, above):
        policy.observe({"w": weights})
        policy.observe({"w": weights * np.float32(1 + 2**-20)})  # 0.95e-6
    assert (below.bits("w"), above.bits("w")) == (8, 16)


def test_weights_that_are_zero_or_not_finite_are_ignored() -> None:
    assert bits(AWP(10, 1), [0, 0, 1, float("nan"), 1, float("inf")]) == [8] * 6


def test_a_training_continues_from_its_state() -> None:
    norms = np.random.default_rng(3).uniform(0.9, 1.1, 60).cumprod().tolist()
    whole, first, second = (AWP(0.0, 7, more_bits=4) for _ in range(3))
    expected = bits(whole, norms)
    found = bits(first, norms[:25])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert found + bits(second, norms[25:]) == expected
    assert len(set(expected)) > 2
    assert second.state_dict() == whole.state_dict()


def test_a_state_is_a_copy() -> None:
    policy = AWP(0.1, 1)
    bits(policy, [1, 1])
    state = policy.state_dict()
    bits(policy, [1])
    assert state["bits"] == {"fc": 16}


def test_the_threshold_is_the_mean_change_of_all_layers() -> None:
    monitor = Monitor()
    for a, b in ((1, 10), (1.5, 10), (1.5, 9)):
        monitor.observe({"a": layer(a), "b": layer(b)})
    assert monitor.threshold == pytest.approx((0.5 + 0 + 0 - 0.1) / 4)


def test_a_threshold_needs_two_updates() -> None:
    monitor = Monitor()
    monitor.observe({"a": layer(1)})
    with pytest.raises(ValueError, match="before and after a batch"):
        _ = monitor.threshold


def test_the_oracle_is_the_precision_that_reaches_the_target_first() -> None:
    assert oracle({8: None, 16: 7.0, 24: 6.5, 32: 9.0}) == 24
    assert oracle({16: 6.5, 8: 6.5}) == 8
    assert oracle({8: None}) is None


def test_policies_have_names() -> None:
    fixed, adaptive = precision("adt:16"), precision("awp:-2e-3,4000")
    assert (fixed, str(fixed), fixed.bits("any")) == (FixedPrecision(16), "adt:16", 16)
    assert str(adaptive) == "awp:-0.002,4000,8"
    assert str(precision(str(adaptive))) == str(adaptive)
    assert str(precision("awp:1,2,4")) == "awp:1,2,4"


@pytest.mark.parametrize(
    "text", ["", "adt", "adt:12", "adt:40", "adt:x", "awp", "awp:1", "awp:1,2,3,4", "awp:1,0", "awp:nan,1", "zip:8"]
)
def test_an_unknown_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a precision of weights: .*awp:T,INTERVAL"):
        precision(text)
