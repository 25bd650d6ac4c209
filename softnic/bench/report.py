"""What every benchmark hands out: rows, how they were made, on what machine; as one table and as JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from softnic import codecs

Row = TypeVar("Row")
"""A dataclass: its fields are what JSON has."""

_WIDEST = 1000
"""No table needs more."""

Progress = Callable[[str], None]
"""Is told what is being measured now."""


class BenchError(Exception):
    """A measurement that could not be made; one line that says why."""


def links(link: Mapping[str, str]) -> str:
    """What a cluster was told of its links, in words."""
    return ", ".join(f"{name} {value}" for name, value in link.items()) or "as fast as the machine"


@dataclass(frozen=True)
class Column(Generic[Row]):
    heading: str
    text: Callable[[Row], str]
    """A row's cell; empty where the column says nothing about it."""
    left: bool = False
    """Words, not figures."""


@dataclass(frozen=True)
class Report(Generic[Row]):
    name: str
    """The benchmark's, as in `softnic bench NAME`."""
    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    settings: Mapping[str, Any]
    notes: Sequence[str] = field(default=())
    """Below the table: what the limits are, what was left out."""

    def as_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "machine": machine(),
            "settings": dict(self.settings),
            "results": [asdict(row) for row in self.rows],  # type: ignore[call-overload]
            "notes": list(self.notes),
        }

    def show(self, console: Console | None = None) -> None:
        console = console or Console(markup=False)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        shown = [column for column in self.columns if any(column.text(row) for row in self.rows)]
        for column in shown:
            table.add_column(column.heading, justify="left" if column.left else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(column.text(row) for column in shown))
        widen(console, table)
        console.print(f"{self.title}\n", highlight=False, style="bold")
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False, soft_wrap=True)


def widen(console: Console, *tables: Table) -> None:
    """Keeps columns of tables whole: a terminal that is narrower wraps lines, as it does those of `softnic stat`."""
    unlimited = console.options.update(width=_WIDEST)
    console.width = max([console.width, *(console.measure(table, options=unlimited).maximum for table in tables)])


def machine() -> dict[str, Any]:
    """What figures depend on most."""
    return {
        "softnic": _version(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "simd": codecs.simd(),
    }


def figure(value: float | None, form: str = ".2f") -> str:
    """A cell; empty for None, which is what a row has where nothing was measured."""
    return "" if value is None else format(value, form)


def share(value: float | None) -> str:
    """A part of a limit, as a cell: `47 %`, and above ten times `12.3 x`."""
    if value is None:
        return ""
    return f"{value:.1f} x" if value >= 10 else f"{value:.0%}".replace("%", " %")


def _version() -> str | None:
    try:
        return importlib.metadata.version("softnic")
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.machine()
