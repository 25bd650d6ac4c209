"""A reproduced table or figure: tables beside the paper's figures, differences of the set-up, findings and charts.

`ValueTable` has rows of plain values, which JSON and CSV get unformatted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from softnic.measure.plot import Bars, Lines, draw
from softnic.measure.report import Value, draw_table, widen, write_csv

Row = Sequence[Value]
"""A row of a ValueTable."""


def number(value: Value) -> float:
    """Return a figure of a table as a number; 0 for an empty cell."""
    return float(value or 0)


def bars(title: str, unit: str, groups: Sequence[str], rows: Sequence[Row], columns: Mapping[str, int]) -> Bars:
    """Return bars of a table's rows, a group each: by the name of a series, the number of its column."""
    return Bars(title, unit, groups, {name: [number(row[at]) for row in rows] for name, at in columns.items()})


class ReproduceError(Exception):
    """An item that cannot be made on this machine. The text is one line: the reason, and what to do."""


@dataclass(frozen=True)
class ValueTable:
    """Table of plain values.

    `columns` holds the headings, separated by ` | `, each with the format of its numbers in brackets if they need one:
    `model | weights [,d] | ratio [.2f]`.
    """

    title: str
    columns: str
    rows: Sequence[Sequence[Value]]
    name: str = ""
    """Suffix of the table's file name, where a report has several tables."""

    @property
    def headings(self) -> list[str]:
        """The columns' headings, without formats."""
        return [column.partition(" [")[0] for column in self.columns.split(" | ")]

    def records(self) -> list[dict[str, Value]]:
        """Return each row by heading."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def cells(self) -> list[list[str]]:
        """Return the rows as text."""
        formats = [column.partition(" [")[2].removesuffix("]") for column in self.columns.split(" | ")]
        return [list(map(_cell, row, formats)) for row in self.rows]

    def draw(self) -> Table:
        words = [any(isinstance(row[index], str) for row in self.rows) for index in range(len(self.headings))]
        return draw_table(zip(self.headings, words, strict=True), self.cells())

    def write(self, path: Path) -> None:
        """Write the table as CSV. Raises OSError."""
        write_csv(path, self.headings, self.rows)

    def as_json(self) -> dict[str, Any]:
        return {"title": self.title, "rows": self.records()}


def _cell(value: Value, form: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, form)


@dataclass(frozen=True)
class Item:
    """What `softnic reproduce PAPER NAME` shows. `items.make` fills in `paper` and `name`."""

    title: str
    tables: Sequence[ValueTable]
    charts: Sequence[Bars | Lines] = ()
    differs: Sequence[str] = ()
    """Differences between the paper's set-up and this one."""
    findings: Sequence[str] = ()
    """What agrees with the paper and what does not, with figures."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: str = ""
    name: str = ""

    def show(self, console: Console) -> None:
        drawn = [table.draw() for table in self.tables]
        widen(console, *drawn)
        console.print(f"\n{self.paper} {self.name}: {self.title}\n", style="bold", highlight=False)
        for table, shown in zip(self.tables, drawn, strict=True):
            console.print(table.title, highlight=False)
            console.print(shown)
        for heading, lines in (("The set-up differs", self.differs), ("Against the paper", self.findings)):
            if lines:
                console.print(f"{heading}:", highlight=False)
            for line in lines:
                console.print(f"- {line}", highlight=False, soft_wrap=True)

    def write(self, directory: Path, *, pictures: bool) -> list[Path]:
        """Write a CSV file for each table and, if there are charts, one PNG.

        Returns the files. Raises OSError, and ImportError without matplotlib.
        """
        files = []
        for table in self.tables:
            files.append(directory / f"{'-'.join(filter(None, (self.paper, self.name, table.name)))}.csv")
            table.write(files[-1])
        if pictures and self.charts:
            files.append(directory / f"{self.paper}-{self.name}.png")
            draw(f"{self.paper} {self.name}: {self.title}", self.charts, files[-1])
        return files

    def as_json(self) -> dict[str, Any]:
        return {
            "item": f"{self.paper} {self.name}",
            "title": self.title,
            "settings": dict(self.settings),
            "tables": [table.as_json() for table in self.tables],
            "differs": list(self.differs),
            "findings": list(self.findings),
        }


# Figures as text, for findings


def percent(share: float, digits: int = 1) -> str:
    """Format a share: `20.9 %`."""
    return f"{share * 100:.{digits}f} %"


def change(saved: Iterable[float], digits: int = 1) -> str:
    """Format savings that may be losses: `20.9 % less`, `3.0 to 20.9 % less`, `15.3 % more`.

    Parameters
    ----------
    saved
        Shares of the whole that were saved; negative where it took more.
    """

    def amount(share: float) -> str:
        return percent(abs(share), digits)

    ordered = sorted(saved)
    low, high = ordered[0], ordered[-1]
    if low >= 0 or high <= 0:
        text = span((abs(low), abs(high)), amount).replace(" % to", " to")
        return f"{text} {'less' if low >= 0 else 'more'}"
    return f"{amount(low)} more to {amount(high)} less"


def points(lost: float) -> str:
    """Format accuracy that was lost, or gained if negative: `0.25 points lower`."""
    return f"{abs(100 * lost):.2f} points {'lower' if lost >= 0 else 'higher'}"


def span(values: Iterable[float], text: str | Callable[[float], str] = percent) -> str:
    """Format the range of values, `low to high`; one figure where both ends read the same. `text` formats a value."""
    show = (lambda value: format(value, text)) if isinstance(text, str) else text
    ordered = sorted(values)
    low, high = show(ordered[0]), show(ordered[-1])
    return low if low == high else f"{low} to {high}"
