"""A2DTWP's errors, steps and bytes by precision: shares by hand, and times by the paper's profiles."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.papers.a2dtwp import paper, precision
from benchmarks.papers.a2dtwp.training import AWP_NAME, BASELINE, WeightTraining
from benchmarks.papers.context import Context
from benchmarks.papers.items import make


@pytest.mark.parametrize("system", paper.SYSTEMS)
def test_the_profiles_give_the_papers_batch_for_the_papers_bytes(system: str) -> None:
    """The rest of a batch, which A2DTWP does not change, differs by 1.5 % at most between the profiles' columns."""
    whole, adaptive = paper.PROFILES[system]
    assert precision.batch_share(system, BASELINE, 1.0) == 1.0
    share = precision.batch_share(system, AWP_NAME, adaptive.weights / whole.weights)
    assert share == pytest.approx(adaptive.total / whole.total, rel=0.04)


def training(errors: Sequence[float], sent: int) -> WeightTraining:
    return WeightTraining([10, 20, 30], list(errors), [sent, 2 * sent, 3 * sent], [8.0] * 3)


def test_steps_are_to_the_error_of_32_bits() -> None:
    whole = [training([0.5, 0.4, 0.1], 400), training([0.5, 0.3, 0.2], 400)]
    own = precision.Seeds("8", [training([0.6, 0.55, 0.52], 100), training([0.6, 0.5, 0.25], 100)], whole)
    assert own.sent == 0.25
    assert own.steps == [20 / 10], "32 bits have 0.5 in the first 60 % of the steps; one seed reaches it"
    assert own.worse.values == pytest.approx([0.42, 0.05])
    assert precision.time_share("x86", own) is None


def test_the_item_has_a_row_for_each_precision(context: Context) -> None:
    item = make("a2dtwp", "precision", context)
    rows = {row["precision"]: row for row in item.tables[0].records()}
    assert list(rows) == ["8", "16", "32", AWP_NAME]
    assert rows["32"]["bytes of weights, of 32 bits'"] == 1
    assert rows["8"]["bytes of weights, of 32 bits'"] == pytest.approx(0.25, abs=0.01)
    assert rows["32"]["time to the error on x86"] == 1
    assert len(item.findings) == 2
