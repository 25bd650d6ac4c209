"""Virtual times are pinned to the nanosecond: no change of TCP, NIC, links or executor goes unnoticed.

A commit that changes one says why, and runs `python -m tests.model.virtual_times`.
"""

from __future__ import annotations

import pytest

from benchmarks import virtual
from softnic.model import check
from softnic.model.check import CheckCase
from softnic.model.layers import Layer
from tests.model import virtual_times
from tests.model.virtual_times import key
from tests.slow import ALL_CASES

CASES = {key(case): case for case in virtual_times.all_cases()}


QUICK = [name for name, case in CASES.items() if case.nodes <= (4 if case.strategy == "wa" else 2)]
"""These take less than a second each. Restarts after a pause, queues at a port and slow start occur in them."""
OTHERS = [name for name, case in CASES.items() if name not in QUICK and (case.nodes <= 8 or ALL_CASES)]
"""More than 8 nodes take minutes."""


@pytest.mark.parametrize("name", QUICK)
def test_a_case_takes_its_pinned_time(name: str) -> None:
    assert virtual_times.simulated(CASES[name]) == virtual_times.pinned()[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_other_cases_take_their_pinned_times(name: str) -> None:
    assert virtual_times.simulated(CASES[name]) == virtual_times.pinned()[name]


def test_every_case_is_pinned() -> None:
    assert list(virtual_times.pinned()) == list(CASES)


def test_the_published_tables_are_those_of_the_pinned_times() -> None:
    """docs/model.md has the formulas' times and errors, too."""
    found = dict(virtual_times.published(virtual_times.PAGE.read_text()))
    assert found == virtual_times.tables(virtual_times.pinned())


def test_the_published_limit_of_the_formulas_is_what_they_miss() -> None:
    """The last figure of docs/model.md, "Checked": an exchange that is little else than latency."""
    case = CheckCase(strategy="nic+c", nodes=3, network=(Layer("all", 1 << 16, 0.0, 0.0),), name="256 KB")
    assert f"is predicted {-check.check(case).error:.0%} too short".replace("%", " %") in virtual_times.PAGE.read_text()


@pytest.mark.slow
def test_the_published_times_of_algorithms_are_those_of_the_benchmark() -> None:
    """docs/performance-ledger.md, "Algorithms", by benchmarks.virtual on 8 nodes."""
    ring, direct, hierarchical = (
        virtual.one(8, algorithm, "", 1e9, 1 << 20).milliseconds for algorithm in ("ring", "direct", "hierarchical")
    )
    text = virtual_times.PAGE.with_name("performance-ledger.md").read_text()
    assert f"ring {ring:.2f} ms, direct {direct:.2f},\nhierarchical {hierarchical:.2f}." in text
