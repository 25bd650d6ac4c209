"""The tables of docs/performance-scale.md: how clusters grow, and the formulas of large all-reduces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.figures.kept import Cells, Rows, row
from softnic.measure.pages import table

FEW, MANY = 8, 1024
GROWTH = [
    "nodes", "all have joined, ms", "first barrier ends, ms", "all-reduce of 4 KB, ms",
    "connections of a NIC, most (mean): barrier and tree", "and a ring", "and what 100 MB takes",
    "memory of a NIC, KiB: Python, the rest",
]  # fmt: skip
LARGE = ["nodes", "100 MB by", "all-reduce of 100 MB, ms", "compared: MB", "simulated, ms", "computed, ms", "error"]


def cells(results: Rows) -> list[Cells]:
    """Return the rows of what was asked."""
    few, many = (row(results, nodes=nodes) for nodes in (FEW, MANY))
    of_few = f"{FEW} nodes: "
    barrier = f"{many['barrier_ms']:.1f} ms"
    small = f"{many['small_ms']:.1f} ms"
    return [
        Cells(f"first barrier of {MANY:,} nodes, from the first SYN", barrier, f"{of_few}{few['barrier_ms']:.1f} ms"),
        Cells(f"all-reduce of 4 KB, {MANY:,} nodes", small, f"{of_few}{few['small_ms']:.1f} ms"),
        Cells(
            f"connections of a NIC of {MANY:,}, tree and ring",
            _connections(many, "ring"),
            of_few + _connections(few, "ring"),
        ),
        Cells(f"all-reduce of 100 MB, {MANY:,} nodes", _large(many), of_few + _large(few)),
    ]


def regions(results: Rows) -> dict[str, str]:
    """Return the tables by the names of their regions."""
    return {
        "growth": table(GROWTH, [_growth(each) for each in results]),
        "large": table(LARGE, [_formulas(each) for each in results]),
    }


def _growth(each: Mapping[str, Any]) -> list[str]:
    times = [f"{each[name]:.2f}" for name in ("joined_ms", "barrier_ms", "small_ms")]
    connections = [_connections(each, name) for name in ("start", "ring", "large")]
    return [f"{each['nodes']:,}", *times, *connections, f"{each['python_kib']:.0f}, {each['rest_kib']:.0f}"]


def _formulas(each: Mapping[str, Any]) -> list[str]:
    found = [f"{each['nodes']:,}", each["algorithm"], _large(each).removesuffix(" ms").replace(" ms,", ",")]
    if each["checked_megabytes"] is None:
        return [*found, "", "", "", ""]
    simulated, computed = each["checked_simulated_ms"], each["checked_computed_ms"]
    error = f"{computed / simulated - 1:+.1%}".replace("%", " %")
    return [*found, f"{each['checked_megabytes']:.4g}", f"{simulated:.2f}", f"{computed:.2f}", error]


def _connections(each: Mapping[str, Any], when: str) -> str:
    return f"{each[f'{when}_most']} ({each[f'{when}_mean']:.1f})"


def _large(each: Mapping[str, Any]) -> str:
    return f"{each['large_ms']:.1f} ms" + (", computed" if each["is_computed"] else "")
