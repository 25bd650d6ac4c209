"""Wording of items: losses are called losses, and stated settings are those of the run."""

from __future__ import annotations

import re

import pytest

from benchmarks.papers import gradients
from benchmarks.papers.a2dtwp.cases import differs as a2dtwp_differs
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, change
from softnic.experiments.data import DataSet


@pytest.mark.parametrize(
    ("less", "text"),
    [
        ([0.209], "20.9 % less"),
        ([-0.153], "15.3 % more"),
        ([0.0], "0.0 % less"),
        ([0.3, 0.03, 0.1], "3.0 to 30.0 % less"),
        ([-0.3, -0.03], "3.0 to 30.0 % more"),
        ([-0.91, 0.1], "91.0 % more to 10.0 % less"),
    ],
)
def test_a_loss_is_not_written_as_a_negative_gain(less: list[float], text: str) -> None:
    assert change(less) == text


def test_quick_runs_of_a2dtwp_state_their_own_length(context: Context) -> None:
    text = " ".join(a2dtwp_differs(context))
    assert "for 6 steps" in text
    assert "on 100 test images" in text
    assert "INTERVAL is 2 batches, 1/3 of the training" in text


def test_whole_runs_of_a2dtwp_state_theirs(data: DataSet, context: Context) -> None:
    text = " ".join(a2dtwp_differs(Context(data, context.data_path, settings=gradients.QUICK)))
    assert "for 500 steps" in text
    assert "on 2,000 test images" in text
    assert "INTERVAL is 25 batches, 1/20 of the training" in text


FULL_SIZE = ("500 steps", "150 steps", "400 steps", "2,000 test images", "2.1 MB were exchanged", "60 and 120 of them")
NEGATIVE_GAIN = re.compile(r"(in|saves|loses|longer by|and|to) -\d[\d.]* (%|points)|-\d[\d.]* % (less|more|of)")


@pytest.mark.slow
def test_quick_items_state_no_full_size_and_no_negative_gain(everything: dict[str, Item]) -> None:
    for name, item in everything.items():
        for line in (*item.differs, *item.findings):
            assert not any(size in line for size in FULL_SIZE), f"{name}: {line}"
            assert not NEGATIVE_GAIN.search(line), f"{name}: {line}"
