"""Reports of measurements: rows, how they were made and on which machine, as tables, JSON and CSV.

`MeasurementReport` has one row per measurement, a dataclass whose fields go to JSON.
"""

from __future__ import annotations

import csv
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from softnic import codecs
from softnic.version import version

Row = TypeVar("Row")
"""A dataclass."""
Value = str | float | int | None
Progress = Callable[[str], None]
"""Receives a short text that says what is being measured."""

_MAX_WIDTH = 1000
"""Characters that no table needs."""


class MeasurementError(Exception):
    """A measurement failed. The message is one line that says why."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """Column of a Report."""

    heading: str
    text: Callable[[Row], str]
    """Returns a row's cell; empty where the row has no such figure."""
    left: bool = False
    """Align to the left, for words."""


def column(heading: str, text: str | Callable[[Any], str] | None = None, *, default: Any = MISSING) -> Any:
    """Declare a field of a row as a column, for `columns`.

    `text` is the format of its values, or a function that returns a cell. Default: two decimals for floats. A value of
    None is an empty cell, and words are aligned to the left.
    """
    return field(default=default, metadata={"heading": heading, "text": text})


def columns(row: type[Row]) -> list[Column[Row]]:
    """Return the columns that the fields of a row declare, in the order of the fields."""

    def declared(name: str, kind: str, heading: str, text: str | Callable[[Any], str] | None) -> Column[Row]:
        form = text or (".2f" if kind.startswith("float") else "")
        cell = form if callable(form) else lambda value: format(value, form)
        return Column(heading, lambda row: "" if (it := getattr(row, name)) is None else cell(it), left=kind == "str")

    return [declared(each.name, str(each.type), **each.metadata) for each in fields(row) if each.metadata]  # type: ignore[arg-type]


@dataclass(frozen=True)
class MeasurementReport(Generic[Row]):
    """Result of a benchmark or an experiment."""

    name: str
    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    settings: Mapping[str, Any]
    notes: Sequence[str] = field(default=())
    """Lines below the table: limits, failures."""

    def as_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "machine": machine(),
            "settings": dict(self.settings),
            "results": [asdict(row) for row in self.rows],  # type: ignore[call-overload]
            "notes": list(self.notes),
        }

    def markdown(self) -> str:
        """Return the table as Markdown."""
        heads = [column.heading for column in self.columns]
        cells = [[column.text(row) for column in self.columns] for row in self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in [heads, ["---"] * len(heads), *cells])

    def show(self, console: Console | None = None) -> None:
        """Print title, table and notes. Columns that are empty in all rows are left out."""
        console = console or Console(markup=False)
        shown = [column for column in self.columns if any(column.text(row) for row in self.rows)]
        headings = [(column.heading, column.left) for column in shown]
        table = draw_table(headings, [[column.text(row) for column in shown] for row in self.rows])
        widen(console, table)
        console.print(f"{self.title}\n", highlight=False, style="bold")
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False, soft_wrap=True)


def draw_table(headings: Iterable[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for a console. `headings` say of each column whether it is aligned to the left."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, left in headings:
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def write_csv(path: Path, headings: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
    """Write rows of values under one line of headings. Raises OSError."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(rows)


def widen(console: Console, *tables: Table) -> None:
    """Make the console wide enough for the tables: a narrower terminal wraps lines instead of columns."""
    unlimited = console.options.update(width=_MAX_WIDTH)
    console.width = max([console.width, *(console.measure(table, options=unlimited).maximum for table in tables)])


def machine() -> dict[str, Any]:
    """Return the properties of this machine and installation that figures depend on most."""
    return {
        "softnic": version(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "simd": codecs.simd(),
    }


def links(link: Mapping[str, str], poll: str | None = None, queues: int | str = 1) -> str:
    """Return the properties of emulated links in words, how many queues NICs have, and for how long they poll."""
    words = ", ".join(f"{name} {value}" for name, value in link.items()) or "as fast as the machine"
    words += "" if queues == 1 else f"; NICs with {queues} queues" if queues != "auto" else "; as many queues as cores"
    return words if poll is None else f"{words}; NICs poll for {poll}"


def figure(value: float | None, form: str = ".2f") -> str:
    """Return a number as a cell; empty for None."""
    return "" if value is None else format(value, form)


def milliseconds(seconds: float) -> str:
    """Return a time as a cell in milliseconds."""
    return f"{1000 * seconds:.1f}"


def share(value: float | None) -> str:
    """Return a part of a limit as a cell: `47 %`, and from ten times on `12.3 x`."""
    if value is None:
        return ""
    return f"{value:.1f} x" if value >= 10 else f"{value:.0%}".replace("%", " %")


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with None in place of NaN and infinities, which JSON cannot represent."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.machine()
