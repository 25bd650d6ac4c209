"""LGC's tables and figures as made by --quick: properties that do not depend on the length of a training."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item
from benchmarks.papers.lgc import gradients as lgc_gradients
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.selected import relative_error
from benchmarks.papers.lgc.training import smoothed
from softnic.measure.report import Value

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def number(value: Value) -> float:
    assert isinstance(value, int | float)
    return float(value)


@pytest.mark.slow
def test_ratios_are_of_the_papers_order(everything: dict[str, Item]) -> None:
    """Ratios do not depend on the length of a training, so --quick gives them too."""
    found = {row["method"]: row for row in everything["lgc table6"].tables[0].records()}
    assert list(found) == [paper.BASELINE, paper.SPARSE_GD, paper.DGC, paper.SCALECOM, paper.RING, paper.SERVER]
    assert found[paper.BASELINE]["ratio"] == pytest.approx(1, rel=1e-5)  # results have six digits
    assert number(found[paper.RING]["ratio of covered layers"]) >= 200
    assert number(found[paper.SERVER]["ratio of covered layers"]) >= 380
    for row in found.values():
        assert number(row["on the wire (MB)"]) > 0
        assert 0 <= float(str(row["accuracy (%)"])) <= 100
    assert number(found[paper.RING]["on the wire (MB)"]) < number(found[paper.BASELINE]["on the wire (MB)"])


@pytest.mark.slow
def test_every_phase_is_timed_and_counted(everything: dict[str, Item]) -> None:
    found = everything["lgc table6"].tables[1].records()
    assert [row["phase"] for row in found] == ["full", "learn", "compressed"] * 2
    for row in found:
        assert float(str(row["ms"])) > 0
        assert (number(row["weights, once (bytes)"]) > 0) == (row["phase"] == "learn")
    sent = [number(row["sent, covered (bytes)"]) for row in found]
    assert sent[0] > sent[1] > sent[2] > 0
    down = [number(row["down (bytes)"]) for row in found]
    assert down[:4] == [0, 0, 0, 0]
    assert min(down[4:]) > 0


@pytest.mark.slow
def test_shuffled_gradients_look_as_common_with_the_papers_levels(everything: dict[str, Item]) -> None:
    for row in everything["lgc fig4"].tables[0].records():
        assert number(row["I of shuffled, 2^32"]) > 0.95 * number(row["H, 2^32"])
        assert number(row["common beyond chance"]) < 1


@pytest.mark.slow
def test_strategies_begin_with_the_same_loss(everything: dict[str, Item]) -> None:
    """The first loss is that of the initial weights, which are the same."""
    first = everything["lgc fig13"].tables[0].records()[0]
    losses = [number(first[name]) for name in ("fixed", "exponential", "warm-up")]
    assert losses == pytest.approx([losses[0]] * 3)


@pytest.mark.slow
def test_a_codec_of_as_many_bytes_is_beside_the_autoencoders(everything: dict[str, Item]) -> None:
    *learned, codec = everything["lgc fig14"].tables[0].records()
    assert len(learned) == 6
    assert number(codec["code (bytes)"]) < 1.1 * number(learned[0]["code (bytes)"])
    assert 0 < number(codec["not learned from"]) < 0.001


def test_nodes_differ_and_hold_the_same_weights(context: Context) -> None:
    both = list(lgc_gradients.steps(context, "convnet", 2, 2))
    again = list(lgc_gradients.steps(context, "convnet", 2, 2))
    for step, repeated in zip(both, again, strict=True):
        assert not np.array_equal(step[0]["0.weight"], step[1]["0.weight"])
        for node, same in zip(step, repeated, strict=True):
            np.testing.assert_array_equal(node["0.weight"], same["0.weight"])


def test_a_relative_error_is_1_for_zeros() -> None:
    wanted = np.array([1, -2, 3], np.float32)
    assert relative_error([(np.zeros(3, np.float32), wanted), (np.zeros(3, np.float32), wanted)]) == 1
    assert relative_error([(wanted, wanted)]) == 0


def test_smoothed_losses_are_means_of_parts() -> None:
    assert smoothed([1, 3, 5, 7, 9], 2) == ([3, 5], [3, 8])
    assert smoothed([1, 2], 5) == ([1, 2], [1, 2])
