"""An item that was made again: tables, how the set-up differs, what of the paper does not hold, how to draw it.

Tables are columns and rows of plain values: people get them formatted, CSV and JSON get them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic.experiments.plot import Bars, Lines, draw
from softnic.experiments.report import ValueTable, widen
from softnic.extras import not_installed


def needs_torch(what: str) -> str:
    """Why an item cannot be made without PyTorch, and what to do."""
    return f"{what}: {not_installed('torch')} (or choose --model hdc)"


class ReproduceError(Exception):
    """An item that cannot be made here; one line that says why and what to do."""


@dataclass(frozen=True)
class Item:
    """What `softnic reproduce PAPER NAME` gives."""

    paper: str
    """As items.py has it: `inceptionn`, `smartnic`, ..."""
    name: str
    title: str
    tables: Sequence[ValueTable]
    charts: Sequence[Bars | Lines] = ()
    differs: Sequence[str] = ()
    """Between the paper's set-up and this one."""
    findings: Sequence[str] = ()
    """What agrees and what does not, with figures."""
    settings: Mapping[str, Any] = field(default_factory=dict)

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
        """Writes a CSV a table and, if there are charts, one PNG. Returns the files. Raises OSError, ImportError."""
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


def percent(share: float, digits: int = 1) -> str:
    """A share as text: `20.9 %`."""
    return f"{share * 100:.{digits}f} %"


def change(less: Iterable[float], digits: int = 1) -> str:
    """Format what was saved, for figures that may be losses: `20.9 % less`, `3.0 to 20.9 % less`, `15.3 % more`.

    Parameters
    ----------
    less
        Shares of the whole that were saved, negative where it took more.
    """

    def amount(share: float) -> str:
        return percent(abs(share), digits)

    ordered = sorted(less)
    low, high = ordered[0], ordered[-1]
    if low >= 0 or high <= 0:
        ends = sorted({abs(low), abs(high)})
        text = span(ends, amount).replace(" % to", " to")
        return f"{text} {'less' if low >= 0 else 'more'}"
    return f"{amount(low)} more to {amount(high)} less"


def span(values: Iterable[float], text: Callable[[float], str] = percent) -> str:
    """From the smallest to the largest, as text; one where they read the same."""
    ordered = sorted(values)
    low, high = text(ordered[0]), text(ordered[-1])
    return low if low == high else f"{low} to {high}"
