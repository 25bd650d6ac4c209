"""A reproduced table or figure: tables beside the paper's figures, differences of the set-up, findings and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic.experiments.plot import Bars, Lines, draw
from softnic.experiments.report import Value, ValueTable, widen

Row = Sequence[Value]
"""A row of a ValueTable."""


class ReproduceError(Exception):
    """An item that cannot be made on this machine. The text is one line: the reason, and what to do."""


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
