"""Clusters of many nodes: the figures of a small one, and the tables that are made of them."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from benchmarks import scale
from benchmarks.figures import scale as tables
from benchmarks.figures.kept import FigureError
from softnic.model.scale import Connections
from softnic.sim.mesh import PORTS

ROW = scale.ScaleRow(
    nodes=8, barrier_ms=7.0, joined_ms=5.0, small_ms=2.104, start_most=20, start_mean=8.75, tree_most=20, ring_most=25,
    ring_mean=16.25, ring_connects_ms=2.8, large_most=25, large_mean=16.25, python_kib=143.2, rest_kib=220.4,
    algorithm="ring", large_ms=147.0, is_computed=False, checked_megabytes=100.0, checked_simulated_ms=147.0,
    checked_computed_ms=146.0,
)  # fmt: skip
MANY = replace(
    ROW, nodes=1024, is_computed=True, large_ms=198.57, checked_megabytes=None, checked_simulated_ms=None,
    checked_computed_ms=None,
)  # fmt: skip
RESULTS = [asdict(ROW), asdict(MANY)]


def test_a_cluster_has_its_times_connections_and_memory() -> None:
    found = scale._start(9, 10e9, 1e-3)
    assert 0 < found.joined_s < found.barrier_s < 0.01
    assert found.start == found.tree
    assert found.start.mean == len(PORTS) * 2 * 8 / 9
    assert found.ring == Connections(25, 140 / 9)  # of 9 pairs of a ring, 3 are in the tree
    assert scale._connected(9, 10e9, 1e-3) == found.ring  # 100 MB go round a ring, too
    assert 50 << 10 < scale._traced(9, 10e9, 1e-3) < 1 << 20


def test_a_table_has_a_row_for_each_size_and_marks_what_is_computed() -> None:
    made = tables.regions(RESULTS)
    growth, large = (made[name].splitlines()[2:] for name in ("growth", "large"))
    assert growth[0] == "| 8 | 5.00 | 7.00 | 2.10 | 20 (8.8) | 25 (16.2) | 25 (16.2) | 143, 220 |"
    assert [line.split(" | ")[0] for line in growth] == ["| 8", "| 1,024"]
    assert large == [
        "| 8 | ring | 147.0 | 100 | 147.00 | 146.00 | -0.7 % |",
        "| 1,024 | ring | 198.6, computed |  |  |  |  |",
    ]


def test_what_was_asked_stands_beside_the_smallest_size() -> None:
    rows = tables.cells(RESULTS)
    assert [row.beside for row in rows] == [
        "8 nodes: 7.0 ms",
        "8 nodes: 2.1 ms",
        "8 nodes: 25 (16.2)",
        "8 nodes: 147.0 ms",
    ]
    assert rows[-1].figure == "198.6 ms, computed"


def test_a_result_without_a_size_makes_no_page() -> None:
    with pytest.raises(FigureError, match="no row for 1024"):
        tables.cells(RESULTS[:1])
